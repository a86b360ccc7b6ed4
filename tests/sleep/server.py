"""Real llama-servers with a tiny model, talked to without a proxy."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from llmsnap.memory.host import Host
from llmsnap.memory.kernel import Usage
from llmsnap.runtime import ports
from llmsnap.sleep.driver import Target
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually
from tests.sleep.holder import state, target

CONVERSATION = ("the quick brown fox jumps over the lazy dog. " * 20)[:600]
"""600 tokens: the tiny model has one for each character."""


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    text: str
    cached: int
    """Tokens of the prompt that were in its KV cache."""
    computed: int
    """Tokens of the prompt that weren't."""


@dataclass
class Server:
    """A running llama-server."""

    process: Process
    port: int
    session: aiohttp.ClientSession

    @property
    def target(self) -> Target:
        """It, as drivers see it."""
        return target(self.process.pid, self.port)

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes: itself, or a shell and itself."""
        return Host().tree(self.process.pid)

    @property
    def usage(self) -> Usage:
        """What its processes hold."""
        return Host().usage(self.pids)

    @property
    def states(self) -> set[str]:
        """The states of its processes, as in `ps`."""
        return {state(pid) for pid in self.pids}

    @property
    def open_files(self) -> int:
        """How many files its processes have open."""
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids)

    async def ask(self, prompt: str = CONVERSATION, tokens: int = 48) -> Answer:
        """Let it go on with `prompt`."""
        async with self.session.post("/completion", json=_body(prompt, tokens)) as answer:
            said = await answer.json()
        timings = said["timings"]
        return Answer(said["content"], timings["cache_n"], timings["prompt_n"])

    async def stream(self, prompt: str, tokens: int) -> AsyncIterator[str]:
        """Yield what it says as it says it."""
        body = {**_body(prompt, tokens), "stream": True}
        async with self.session.post("/completion", json=body) as answer:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])["content"]


def _body(prompt: str, tokens: int) -> dict[str, Any]:
    return {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True}


@asynccontextmanager
async def serving(*, in_shell: bool = False, seed: int = 0) -> AsyncIterator[Server]:
    """Run a llama-server until it answers; all its processes are gone afterwards.

    `in_shell`: below a shell, as scripts start it.
    """
    port = free_port()
    argv = server_argv(tiny_gguf(seed), str(port))
    if in_shell:
        argv = ["/bin/sh", "-c", f"{shlex.join(argv)}; echo ended"]
    process = await asyncio.create_subprocess_exec(
        *argv, env=server_environment(), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        timeout = aiohttp.ClientTimeout(total=40)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=timeout) as session:
            server = Server(process, port, session)
            await eventually(lambda: _is_ready(server), what="llama-server is up")
            yield server
    finally:
        for pid in Host().tree(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()


async def _is_ready(server: Server) -> bool:
    assert server.process.returncode is None, "llama-server ended"
    try:
        async with server.session.get("/health") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def listens(pids: Collection[int], host: str, port: int) -> bool:
    """Whether one of `pids` listens there."""
    return ports.listens(pids, await ports.local_addresses(host), port)
