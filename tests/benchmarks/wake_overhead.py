"""What the proxy adds to a wake: from the request's arrival until it is forwarded.

    python -m tests.benchmarks.wake_overhead [--times 30]

Two small models, and room for both, so that nothing has to make room for them. Each is put to
sleep and asked, over and over, through the real command line. From the time until the request is at
the server the driver's own time (`last_wake` of `/api/models`) is taken off; what is left is to be
under 10 ms. A stand-in that sleeps by endpoints tells when a request reaches it, on the clock that
the client uses, so that client, proxy and the system between them all count. A llama-server sleeps
by page-out; of it the proxy's own word is taken (`Server-Timing`). What else runs on the machine
shows in the longest times, so the load is told. Needs root, for swap.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from llmsnap.client.stream import phases_of, waits_of
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.swap import swap_file
from tests.helpers.waiting import eventually

GOAL_S: Final = 0.010
STAND_IN: Final = "stand-in"
LLAMA_SERVER: Final = "llama-server"
SWAP_BYTES: Final = 2**30


class StandIn(asyncio.Protocol):
    """One connection: `/health` is 200, anything else is answered with when its body was in."""

    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer the request, which is small enough to come in one piece."""
        body = json.dumps({"arrived": time.monotonic()}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)


async def stand_in(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(StandIn, "127.0.0.1", port)
    await server.serve_forever()


def configuration() -> str:
    """Return a configuration with room for both models."""
    commands = {
        STAND_IN: [sys.executable, "-m", __spec__.name, "--serve", "${PORT}"],
        LLAMA_SERVER: server_argv(tiny_gguf()),
    }
    steps = "sleepEndpoints: [{endpoint: /sleep}], wakeEndpoints: [{endpoint: /wake_up}]"
    more = {STAND_IN: f", {steps}", LLAMA_SERVER: ""}
    lines = [
        "memory: {devices: {host: 2GiB}}",
        "sleep: {after: 0}",
        f"startPort: {free_ports(len(commands))}",
        "models:",
    ]
    for name, argv in commands.items():
        command = json.dumps(" ".join(argv))
        lines.append(f"  {name}: {{cmd: {command}, ram: 400MiB{more[name]}}}")
    return "\n".join(lines)


async def awake_and_known(proxy: ProxyProcess, model: str) -> None:
    """Load `model`, and wait until it is known how it sleeps."""
    await ask(proxy, model)

    async def known() -> bool:
        return (await proxy.models())[model]["driver"] is not None

    await eventually(known, what=f"{model} has a driver")


async def ask(proxy: ProxyProcess, model: str) -> float:
    """Ask for one token; return the seconds until the server had the request."""
    body = {"model": model, "prompt": "hi", "max_tokens": 1}
    began = time.monotonic()
    async with proxy.session.post("/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        if model == STAND_IN:
            return float((await answer.json())["arrived"]) - began
        return sum(waits_of(phases_of(answer.headers["Server-Timing"])).values())


async def wake(proxy: ProxyProcess, model: str) -> tuple[float, float]:
    """Put `model` to sleep and wake it by a request; return the driver's time and the rest."""
    status, answer = await proxy.post(f"/api/models/sleep/{model}")
    assert status == 200, answer
    until_forwarded_s = await ask(proxy, model)
    driver_s = float((await proxy.models())[model]["last_wake"]["seconds"])
    return driver_s, until_forwarded_s - driver_s


def row(model: str, wakes: Sequence[tuple[float, float]]) -> str:
    """Return a line of the table."""
    driver_s, added_s = (sorted(column) for column in zip(*wakes, strict=True))
    verdict = "reached" if added_s[-1] < GOAL_S else "NOT REACHED"
    return (
        f"{model:14} {statistics.median(driver_s) * 1e3:7.1f} ms "
        f"{statistics.median(added_s) * 1e3:7.2f} ms "
        f"{added_s[int(0.95 * len(added_s))] * 1e3:7.2f} ms {added_s[-1] * 1e3:7.2f} ms  {verdict}"
    )


async def main(times: int) -> None:
    """Wake both so often, in turns."""
    models = (STAND_IN, LLAMA_SERVER)
    found: dict[str, list[tuple[float, float]]] = {model: [] for model in models}
    with tempfile.TemporaryDirectory() as folder, swap_file(SWAP_BYTES):
        async with running_proxy(configuration(), Path(folder), env=server_environment()) as proxy:
            for model in models:
                await awake_and_known(proxy, model)
            for _ in range(times):
                for model in models:
                    found[model].append(await wake(proxy, model))
    print(f"{times} wakes of each; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'':14}  driver, p50  added, p50        p95        max  under 10 ms")
    for model, wakes in found.items():
        print(row(model, wakes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        with suppress(KeyboardInterrupt):
            asyncio.run(stand_in(options.serve))
    else:
        asyncio.run(main(options.times))
