"""The stand-in server does what makes sleeping servers dangerous, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from typing import Any

import pytest

from llmsnap.sleep.cuda_client import Worker
from llmsnap.sleep.cuda_wire import Operation
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually
from tests.sim.gauge import python_module, with_repository
from tests.sim.world import World


class Standin:
    """A running stand-in, and the calls that put it to sleep."""

    def __init__(self, process: Process, port: int, worker: Worker) -> None:
        self.process = process
        self._base = f"http://127.0.0.1:{port}"
        self._worker = worker

    async def calls(self, *operations: Operation) -> list[int]:
        pid = self.process.pid
        replies = [await self._worker.ask(op, pid, deadline_s=60) for op in operations]
        return [reply.result for reply in replies]

    async def get(self, path: str) -> Any:
        return await asyncio.to_thread(self._fetch, path, None)

    async def complete(self, prompt: str) -> Any:
        body = json.dumps({"prompt": prompt}).encode()
        return await asyncio.to_thread(self._fetch, "/completion", body)

    async def answers(self) -> bool:
        try:
            await self.get("/health")
        except OSError:
            return False
        return True

    def _fetch(self, path: str, body: bytes | None) -> Any:
        with urllib.request.urlopen(self._base + path, body, timeout=60) as answer:
            return json.load(answer)


@pytest.fixture
async def standin(world: World) -> AsyncIterator[Standin]:
    """One with 64 MiB of weights."""
    port = free_port()
    command = python_module("tests.sim.standin", "--port", str(port), "--mib", "64")
    environ = with_repository(world.environ())
    process = await asyncio.create_subprocess_exec(*command, env=environ)
    worker = Worker(world.environ(), hello_timeout_s=30)
    standin = Standin(process, port, worker)
    await eventually(standin.answers)
    yield standin
    if process.returncode is None:
        process.kill()
    await process.wait()
    await worker.aclose()


async def test_its_conversation_is_in_gpu_memory_and_survives(standin: Standin) -> None:
    """After a whole cycle the next prompt is found in the cache."""
    assert (await standin.complete("a b c"))["timings"]["cache_n"] == 0
    assert await standin.calls("lock", "checkpoint", "restore", "unlock") == [0, 0, 0, 0]
    timings = (await standin.complete("a b c d"))["timings"]
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (5, 2, 1)


async def test_a_request_that_reaches_it_asleep_crashes_it(standin: Standin) -> None:
    """As llama-server's first call for a request does."""
    await standin.calls("lock", "checkpoint")
    with pytest.raises((OSError, urllib.error.URLError)):
        await standin.complete("a")
    async with asyncio.timeout(30):
        assert await standin.process.wait() == -signal.SIGSEGV


@pytest.mark.parametrize("path", ["/health", "/props", "/slots", "/metrics", "/v1/models"])
async def test_what_needs_no_gpu_is_answered_asleep_too(standin: Standin, path: str) -> None:
    """So an answer to /health proves nothing."""
    await standin.calls("lock", "checkpoint")
    assert (await standin.get(path))["status"] == "ok"


async def test_sigterm_crashes_it_asleep(standin: Standin) -> None:
    """It frees its model first; that is why asleep servers are killed."""
    await standin.calls("lock", "checkpoint")
    os.kill(standin.process.pid, signal.SIGTERM)
    async with asyncio.timeout(30):
        assert await standin.process.wait() == -signal.SIGSEGV


async def test_sigterm_ends_it_awake(standin: Standin) -> None:
    """With exit code 0."""
    os.kill(standin.process.pid, signal.SIGTERM)
    async with asyncio.timeout(30):
        assert await standin.process.wait() == 0
