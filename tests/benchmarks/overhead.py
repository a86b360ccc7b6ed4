"""What the proxy costs: direct, through plain aiohttp relays, and through llmsnap, in one run.

    python -m tests.benchmarks.overhead [--seconds 2] [--rounds 3] [--activity on] [--json]

The upstream and the load generator are raw asyncio protocols that cost next to nothing; llmsnap
runs as its users run it: the real command line, an API key, leases, and a line in the log for each
request. All are asked in turn, round after round, and the median of the rounds is told, so
that what else the machine does falls on all alike. Upstream, proxy and load share its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop

from tests.benchmarks.load import Client, Sample, post, run
from tests.helpers.ports import free_ports
from tests.helpers.waiting import eventually

CHAT = "/v1/chat/completions"
KEY = "benchmark"
OPEN_STREAMS = 1000
LARGE_BYTES = 20 * 2**20
LARGE_TIMES = 5

RELAYS: dict[str, list[str]] = {"plain relay": [], "plain relay on uvloop": ["--uvloop"]}
"""The yardsticks, and their options."""

CONFIG = """
apiKeys: [{key}]
startPort: {port}
models:
  raw:
    cmd: {python} -m tests.benchmarks.raw_upstream --port ${{PORT}}
"""
ACTIVITY = "activity: {{mode: {mode}}}\n"


def body(text_bytes: int, *flags: str) -> bytes:
    """A chat request with so much text in it."""
    more = "".join(f',"{flag}":true' for flag in flags)
    return b'{"model":"raw"%b,"text":"%b"}' % (more.encode(), b"x" * text_bytes)


@dataclass
class Figures:
    """What was measured of one way to the upstream, a list entry a round."""

    one: list[Sample] = field(default_factory=list)
    many: list[Sample] = field(default_factory=list)
    streams: list[Sample] = field(default_factory=list)
    large_s: list[float] = field(default_factory=list)
    rss_idle: float | None = None
    rss_streams: float | None = None
    listening_s: float | None = None

    def summary(self) -> dict[str, float]:
        """Medians over the rounds, by the names that the table shows."""
        told = {
            "1 connection, p50 ms": _median(s.quantile_ms(0.5) for s in self.one),
            "1 connection, p99 ms": _median(s.quantile_ms(0.99) for s in self.one),
            "16 connections, requests/s": _median(s.per_second for s in self.many),
            "16 connections, p50 ms": _median(s.quantile_ms(0.5) for s in self.many),
            "16 connections, p99 ms": _median(s.quantile_ms(0.99) for s in self.many),
            "8 streams, events/s": _median(s.events_per_second for s in self.streams),
            "20 MiB body, ms": _median(self.large_s) * 1e3,
            "RSS idle, MiB": self.rss_idle,
            f"RSS with {OPEN_STREAMS} open streams, MiB": self.rss_streams,
            "exec to listening, ms": self.listening_s and self.listening_s * 1e3,
        }
        return {name: value for name, value in told.items() if value is not None}


def _median(values: Iterator[float] | list[float]) -> float:
    return statistics.median(list(values))


def _environment() -> dict[str, str]:
    """Ours, but with compiled modules kept, as an installed package has them."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def compile_package() -> None:
    """Have the modules compiled before anything is timed."""
    subprocess.run([sys.executable, "-c", "import llmsnap.app"], check=True, env=_environment())


@contextmanager
def running(*module: str, log: Path) -> Iterator[psutil.Process]:
    """Run a Python module; end it and its children afterwards."""
    with log.open("wb") as out:
        argv = [sys.executable, "-m", *module]
        process = subprocess.Popen(argv, stdout=out, stderr=out, env=_environment())
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(timeout=20)


async def listening(port: int) -> None:
    """Return when something listens on `port`."""
    while True:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        await asyncio.sleep(0.001)


async def measure(seconds: float, rounds: int, activity: str) -> dict[str, Figures]:
    """Measure all ways, and return them by name."""
    ways = {name: Figures() for name in ("direct", *RELAYS, "llmsnap")}
    first = free_ports(len(ways))
    ports = {name: first + n for n, name in enumerate(ways)}
    async with _started(ports, ways, ACTIVITY.format(mode=activity)):
        for _ in range(rounds):
            for name, figures in ways.items():
                await _round(ports[name], figures, seconds)
        for name, figures in ways.items():
            await _large_bodies(ports[name], figures)
    return ways


@asynccontextmanager
async def _started(
    ports: dict[str, int], ways: dict[str, Figures], settings: str
) -> AsyncIterator[None]:
    """Start proxy, upstream and relay; measure what there is to measure of their start and size."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Path(folder)
        config = place / "config.yaml"
        models = CONFIG.format(key=KEY, port=ports["direct"], python=sys.executable)
        config.write_text(models + settings)
        serve = ["llmsnap", "--config", str(config), "--state-dir", str(place / "state")]
        listen = ["--listen", f"127.0.0.1:{ports['llmsnap']}"]
        began = time.perf_counter()
        proxy = stack.enter_context(running(*serve, *listen, log=place / "log"))
        await listening(ports["llmsnap"])
        ways["llmsnap"].listening_s = time.perf_counter() - began
        proxies = {"llmsnap": proxy}
        for name, options in RELAYS.items():
            places = ["--port", str(ports[name]), "--upstream", str(ports["direct"])]
            relay = running("tests.benchmarks.plain_relay", *places, *options, log=place / name)
            proxies[name] = stack.enter_context(relay)
            await listening(ports[name])
        for name, process in proxies.items():
            await run(ports[name], post(CHAT, body(900), key=KEY), connections=1, seconds=0)
            ways[name].rss_idle = process.memory_info().rss / 2**20
        yield
        for name, process in proxies.items():
            ways[name].rss_streams = await _with_open_streams(ports[name], process)


async def _round(port: int, figures: Figures, seconds: float) -> None:
    whole = post(CHAT, body(900), key=KEY)
    figures.one.append(await run(port, whole, connections=1, seconds=seconds))
    figures.many.append(await run(port, whole, connections=16, seconds=seconds))
    stream = post(CHAT, body(100, "stream"), key=KEY)
    figures.streams.append(await run(port, stream, connections=8, seconds=seconds))


async def _large_bodies(port: int, figures: Figures) -> None:
    request = post(CHAT, body(LARGE_BYTES), key=KEY)
    for _ in range(LARGE_TIMES):
        sample = await run(port, request, connections=1, seconds=0)
        figures.large_s += sample.latencies_s


async def _with_open_streams(port: int, process: psutil.Process) -> float:
    """Return the MiB that `process` has while it passes that many silent streams on."""
    loop = asyncio.get_running_loop()
    sample = Sample()
    request = post(CHAT, body(100, "stream", "hold"), key=KEY)
    clients = []
    for _ in range(OPEN_STREAMS):
        _, client = await loop.create_connection(
            lambda: Client(request, sample, lambda: False), "127.0.0.1", port
        )
        clients.append(client)
    await eventually(lambda: sample.events >= OPEN_STREAMS, timeout_s=60)
    used = process.memory_info().rss / 2**20
    for client in clients:
        client.close()
    return used


def table(ways: dict[str, Figures]) -> str:
    """Return the figures as a Markdown table."""
    columns = {name: figures.summary() for name, figures in ways.items()}
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for row in columns["llmsnap"]:
        cells = [_shown(column.get(row)) for column in columns.values()]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of load at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--activity", choices=("on", "off"), default="on", help="rows of requests")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    compile_package()
    ways = uvloop.run(measure(options.seconds, options.rounds, options.activity))
    if options.json:
        print(json.dumps({name: figures.summary() for name, figures in ways.items()}, indent=2))
    else:
        print(table(ways))


if __name__ == "__main__":
    main()
