"""llama-server as the benchmarks start it: behind llmsnap, by itself, or as its own router."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from tests.helpers.llama import server_environment
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually

PATIENCE_S: Final = 600


@dataclass(frozen=True)
class Engine:
    """How llama-server is started here."""

    program: str
    flags: Sequence[str] = ()

    def argv(self, port: str, *more: str) -> list[str]:
        """Return the command line."""
        place = ("--host", "127.0.0.1", "--port", port)
        return [self.program, *place, "--no-warmup", "-c", "4096", "-np", "1", *self.flags, *more]

    async def start(self, port: int, *more: str) -> Process:
        """Start one and return once it answers; raise AssertionError when it ends instead."""
        process = await asyncio.create_subprocess_exec(
            *self.argv(str(port), *more),
            env=server_environment(),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        async with client(f"http://127.0.0.1:{port}") as session:

            async def healthy() -> bool:
                assert process.returncode is None, f"llama-server ended: {process.returncode}"
                try:
                    async with session.get("/health") as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await eventually(healthy, timeout_s=PATIENCE_S)
        return process


@asynccontextmanager
async def router(
    engine: Engine, files: Mapping[str, Path], folder: Path, *, most: int
) -> AsyncIterator[aiohttp.ClientSession]:
    """Run llama-server's own router with room for `most` models; yields a client of it."""
    folder.mkdir()
    for name, path in files.items():
        (folder / f"{name}.gguf").symlink_to(path)
    port = free_port()
    places = ("--models-dir", str(folder), "--models-max", str(most))
    process = await engine.start(port, *places)
    try:
        async with client(f"http://127.0.0.1:{port}") as session:
            yield session
    finally:
        await end(process)


async def end(process: Process) -> None:
    """End a server."""
    process.terminate()
    await process.wait()


def client(url: str) -> aiohttp.ClientSession:
    """Return a session that waits as long as a prefill may take, for as many as like."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    return aiohttp.ClientSession(url, timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
