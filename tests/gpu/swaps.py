"""Two servers that hold GPU memory behind the real proxy, of which the card holds one."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually
from tests.sim.gauge import python_module, with_repository

MODELS = ("first", "second")


def config_for(
    mib: int, *options: str, models: Sequence[str] = MODELS, extra: Sequence[str] = ()
) -> str:
    """Return a configuration in which each of `models` has `mib`, and the card room for one.

    `options` are of their command, `extra` lines of the configuration.
    """
    command = python_module("tests.sim.standin", "--port", "${PORT}", "--mib", str(mib), *options)
    need = mib + 640  # its context, which differs between cards
    lines = [
        f"startPort: {free_ports(len(models))}",
        "memory:",
        f"  devices: {{gpu0: {need * 3 // 2}MiB}}",
        *extra,
        "models:",
    ]
    for model in models:
        lines += [f"  {model}:", f"    cmd: {shlex.join(command)}", f"    vram: {need}MiB"]
    return "\n".join(lines) + "\n"


async def swaps(environ: Mapping[str, str], *, gib: float, rounds: int) -> dict[str, Any]:
    """Ask both in turn; return what coming back took and what was still in the cache."""
    env = with_repository(environ)
    with tempfile.TemporaryDirectory() as folder:
        async with running_proxy(config_for(int(gib * 1024)), Path(folder), env=env) as running:
            for model in MODELS:
                await running.chat(model, "Once upon a time")
                await knows_how_to_sleep(running, model)
            rows = [await _turn(running, model) for _ in range(rounds) for model in MODELS]
    return {"gib": gib, "turns": rows}


async def knows_how_to_sleep(running: ProxyProcess, model: str) -> None:
    """Wait until the proxy has found a driver for `model`."""

    async def knows() -> bool:
        return (await running.models())[model]["driver"] is not None

    await eventually(knows, timeout_s=60, what=f"{model} can sleep")


async def _turn(running: ProxyProcess, model: str) -> dict[str, Any]:
    begun = time.monotonic()
    answer = await running.chat(model, "Once upon a time")
    seconds = time.monotonic() - begun
    shown = (await running.models())[model]
    return {
        "model": model,
        "seconds": round(seconds, 3),
        "woken_s": (shown["last_wake"] or {}).get("seconds"),
        "generation": shown["generation"],
        "cache_n": answer["timings"]["cache_n"],
    }
