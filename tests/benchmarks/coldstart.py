"""A swap by stop and start, with the next model's file out of the page cache.

    python -m tests.benchmarks.coldstart [--runs N] [--layers N] [--json]

The real proxy, two real llama-servers with a synthetic model each (94 MB a layer), one at a time.
While `a` answers, `b` is asked for: what counts is the time from the end of a's answer to the first
token of b's. Three ways: b's file is dropped from the cache and nothing is read ahead
(`memory.prefetch: false`); it is dropped and read ahead; it was in the cache all the time. Dropping
takes root (`drop_caches`); anybody else has the kernel forget that file alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.helpers.llama import made_gguf, server_argv, server_environment
from tests.helpers.pagecache import drop, drop_all, resident_bytes
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy

_TOKENS_OF_A: Final = 48


@dataclass(frozen=True)
class Way:
    """How b's file comes to be where it is when b starts."""

    name: str
    cold: bool
    prefetch: bool


WAYS: Final = (
    Way("cold, nothing read ahead", cold=True, prefetch=False),
    Way("cold, read ahead", cold=True, prefetch=True),
    Way("in the page cache already", cold=False, prefetch=False),
)


@dataclass(frozen=True)
class Swap:
    """One swap, in seconds."""

    wait_s: float
    """From the end of a's answer to b's first token."""
    answer_s: float
    """What was left of a's answer when b was asked for."""
    resident: float
    """Share of b's file that was in memory when a was done."""


def models(layers: int) -> dict[str, Path]:
    """Return two models of that many layers."""
    shape = {"layers": layers, "embd": 2048, "ff": 5632, "heads": 16, "kv_heads": 8}
    return {
        name: made_gguf(f"cold-{layers}-{name}", seed=seed, **shape)
        for seed, name in enumerate("ab")
    }


def configuration(files: dict[str, Path], way: Way) -> str:
    """Return a configuration that has room for one of the models."""
    lines = [
        f"memory: {{devices: {{host: 3GiB}}, prefetch: {json.dumps(way.prefetch)}}}",
        "sleep: {mode: off}",
        "schedule: {hold: 0}",  # a's client may seem to be expected back; that isn't asked here
        f"startPort: {free_ports(len(files))}",
        "models:",
    ]
    for name, path in files.items():
        lines.append(f"  {name}: {{cmd: {json.dumps(' '.join(server_argv(path)))}, ram: 2GiB}}")
    return "\n".join(lines)


def forget(path: Path) -> None:
    """Have the kernel drop its page cache, or at least `path`."""
    try:
        drop_all()
    except OSError:
        drop(path)


async def stream(
    proxy: ProxyProcess, model: str, tokens: int, began: Callable[[], object]
) -> float:
    """Stream an answer; call `began` at its first token. Returns when it ended, on the clock."""
    body = {"model": model, "prompt": "hi", "temperature": 0, "max_tokens": tokens, "stream": True}
    async with proxy.session.post("/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        first = True
        async for line in answer.content:
            if first and line.startswith(b"data:"):  # not the comments that say that it waits
                first = False
                began()
        return time.perf_counter()


async def swap(files: dict[str, Path], way: Way, folder: Path) -> Swap:
    """Swap once, from a to b."""
    async with running_proxy(configuration(files, way), folder, env=server_environment()) as proxy:
        await stream(proxy, "a", 1, lambda: None)
        if way.cold:
            forget(files["b"])
            assert resident_bytes(files["b"]) == 0
        answering = asyncio.Event()
        first_of_b: list[float] = []
        of_a = asyncio.ensure_future(stream(proxy, "a", _TOKENS_OF_A, answering.set))
        await answering.wait()
        asked = time.perf_counter()
        of_b = asyncio.ensure_future(
            stream(proxy, "b", 1, lambda: first_of_b.append(time.perf_counter()))
        )
        ended = await of_a
        resident = resident_bytes(files["b"]) / files["b"].stat().st_size
        await of_b
    return Swap(first_of_b[0] - ended, ended - asked, min(resident, 1.0))


async def measure(files: dict[str, Path], runs: int) -> dict[str, list[Swap]]:
    """Swap that often in each way, in turns."""
    found: dict[str, list[Swap]] = {way.name: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            for way in WAYS:
                for path in files.values():
                    path.read_bytes()
                found[way.name].append(await swap(files, way, Path(folder)))
    return found


def table(found: dict[str, list[Swap]]) -> str:
    """Return a Markdown table."""
    lines = [
        "| b's file | in memory at the end of a's answer | to b's first token, median | range |",
        "|---|---|---|---|",
    ]
    for name, swaps in found.items():
        waits = [swap.wait_s for swap in swaps]
        resident = statistics.median(swap.resident for swap in swaps)
        lines.append(
            f"| {name} | {resident:.0%} | {statistics.median(waits):.2f} s "
            f"| {min(waits):.2f}-{max(waits):.2f} s |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print a table or all there is as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    files = models(options.layers)
    found = asyncio.run(measure(files, options.runs))
    size = files["b"].stat().st_size
    if options.json:
        swaps = {name: [asdict(swap) for swap in each] for name, each in found.items()}
        json.dump({"file_bytes": size, "swaps": swaps}, sys.stdout, indent=2)
        print()
    else:
        print(f"A file of {size / 1e6:.0f} MB, {options.runs} runs each.\n\n{table(found)}")


if __name__ == "__main__":
    main()
