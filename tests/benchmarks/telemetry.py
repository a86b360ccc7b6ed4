"""What it costs to remember: with records, tokens and metrics, without, and with a scraper beside.

    python -m tests.benchmarks.telemetry [--seconds 2] [--rounds 9] [--json]

Two proxies of the real command line over raw upstreams, one as it comes, one with
`activity: {mode: off, tokens: false}`. They are asked in turn, and the median of the pairs' ratios
is told. The scraper asks for `/metrics` as Prometheus does, but each second, of a proxy with fifty
models that all have served.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil
import uvloop

from tests.benchmarks.load import Sample, post, run
from tests.benchmarks.overhead import CHAT, KEY, compile_package, listening, running
from tests.helpers.ports import free_ports
from tests.runtime.rig import CHILDREN

MODELS = 50
CONNECTIONS = 16
SCRAPE_EVERY_S = 1.0
OFF = "activity: {mode: off, tokens: false}"
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"

HEAD = """
apiKeys: [{key}]
startPort: {port}
memory: {{mode: off}}
groups: {{all: {{swap: false, exclusive: false, members: [{members}]}}}}
{more}
models:
"""
MODEL = """
  m{n}:
    cmd: {python} {server} ${{PORT}}
"""
RAW = "-m tests.benchmarks.raw_upstream --port"
SMALL = f"-S {CHILDREN / 'serve.py'}"
"""Of all models but the first, so that they have figures."""

ANSWER_BODY = b'{"model":"m%d","text":"%b"}'


def config(*, models: int, first_port: int, more: str = "") -> str:
    """Models that may all be up."""
    members = ", ".join(f"m{n}" for n in range(models))
    head = HEAD.format(key=KEY, port=first_port, members=members, more=more)
    return head + "".join(
        MODEL.format(n=n, python=sys.executable, server=SMALL if n else RAW) for n in range(models)
    )


def ask(model: int) -> bytes:
    """A chat request of a kilobyte."""
    return post(CHAT, ANSWER_BODY % (model, b"x" * 900), key=KEY)


@dataclass
class Proxy:
    """One of them at work."""

    port: int
    process: psutil.Process
    per_second: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    """A request, of the proxy's process alone: what else the machine does changes it little."""

    async def round(self, seconds: float) -> None:
        """Ask for that long."""
        before = self.process.cpu_times()
        sample = await run(self.port, ask(0), connections=CONNECTIONS, seconds=seconds)
        after = self.process.cpu_times()
        used_s = after.user + after.system - before.user - before.system
        self.per_second.append(sample.per_second)
        self.cpu_s.append(used_s / len(sample.latencies_s))


@asynccontextmanager
async def started(*, models: int, more: str = "") -> AsyncIterator[Proxy]:
    """Run a proxy whose models have all served once."""
    port = free_ports(models + 1)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        own = Path(folder)
        (own / "config.yaml").write_text(config(models=models, first_port=port + 1, more=more))
        argv = ["llmsnap", "--config", str(own / "config.yaml"), "--state-dir", str(own)]
        argv += ["--listen", f"127.0.0.1:{port}"]
        process = stack.enter_context(running(*argv, log=own / "log"))
        await listening(port)
        for n in range(models):
            await run(port, ask(n), connections=1, seconds=0)
        yield Proxy(port, process)


async def measure(seconds: float, rounds: int) -> dict[str, float]:
    """Measure everything, and return what is told."""
    async with started(models=1) as on, started(models=1, more=OFF) as off:
        compared = await _compared(on, off, seconds, rounds)
    async with started(models=MODELS) as proxy:
        return {**compared, **await _scraped(proxy.port, seconds, rounds)}


async def _compared(on: Proxy, off: Proxy, seconds: float, rounds: int) -> dict[str, float]:
    """Ask both in turn, the other one first each time."""
    for number in range(rounds):
        for proxy in (on, off) if number % 2 else (off, on):
            await proxy.round(seconds)
    slower = [1 - ours / theirs for ours, theirs in zip(on.per_second, off.per_second, strict=True)]
    dearer = [ours / theirs - 1 for ours, theirs in zip(on.cpu_s, off.cpu_s, strict=True)]
    return {
        "requests/s, remembering": statistics.median(on.per_second),
        "requests/s, not": statistics.median(off.per_second),
        "fewer requests/s, % (median of pairs)": 100 * statistics.median(slower),
        "CPU a request, us, remembering": 1e6 * statistics.median(on.cpu_s),
        "CPU a request, us, not": 1e6 * statistics.median(off.cpu_s),
        "more CPU, % (median of pairs)": 100 * statistics.median(dearer),
    }


async def _scraped(port: int, seconds: float, rounds: int) -> dict[str, float]:
    """Ask with a scraper beside it and without, in turn."""
    seen: dict[str, list[Sample]] = {"with": [], "without": []}
    texts: list[float] = []
    for _ in range(rounds):
        seen["without"].append(await _loaded(port, seconds))
        async with _scraper(port, texts):
            seen["with"].append(await _loaded(port, seconds))
    told = {
        f"p{share:.0%} ms, {how} a scraper".replace("%", ""): statistics.median(
            sample.quantile_ms(share) for sample in samples
        )
        for how, samples in seen.items()
        for share in (0.5, 0.99)
    }
    return {**told, "a scrape, ms": statistics.median(texts) * 1e3}


async def _loaded(port: int, seconds: float) -> Sample:
    return await run(port, ask(0), connections=CONNECTIONS, seconds=seconds)


@asynccontextmanager
async def _scraper(port: int, texts: list[float]) -> AsyncIterator[None]:
    """Scrape again and again; `texts` gets how long each took."""
    headers = {"Authorization": f"Bearer {KEY}", "Accept": OPENMETRICS, "Accept-Encoding": "gzip"}

    async def scrape(session: aiohttp.ClientSession) -> None:
        while True:
            began = time.perf_counter()
            async with session.get("/metrics") as answer:
                assert b"llmsnap_requests_total" in await answer.read()
            texts.append(time.perf_counter() - began)
            await asyncio.sleep(SCRAPE_EVERY_S)

    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session:
        scraping = asyncio.ensure_future(scrape(session))
        yield
        scraping.cancel()
        await asyncio.wait({scraping})
        if not scraping.cancelled():
            scraping.result()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of load at a time")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    options = parser.parse_args()
    compile_package()
    figures = uvloop.run(measure(options.seconds, options.rounds))
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"| {name} | {value:,.3g} |")


if __name__ == "__main__":
    main()
