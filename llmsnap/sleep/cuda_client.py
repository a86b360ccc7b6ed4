"""The proxy's side of the CUDA processes: calls with deadlines, and what hangs is replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from llmsnap.sleep.cuda_wire import Hello, Operation, Order, Reply

logger = logging.getLogger(__name__)

_MODULE: Final = "llmsnap.sleep.cuda_helper"
_FAREWELL_S: Final = 1.0


class CallLost(Exception):
    """A call has no answer: its process died or missed the deadline. What it did is unknown."""

    def __init__(self, why: str, *, hung: bool = False) -> None:
        super().__init__(why)
        self.hung = hung
        """Whether it missed the deadline."""


class CudaClient:
    """The checkpoint calls, each with a deadline in seconds from when it really begins.

    Calls that change something go one after the other through one process; state queries have one
    of their own, because they block while their process is being changed. `environ` is the
    environment of both. Calls raise CallLost.
    """

    def __init__(
        self, *, environ: Mapping[str, str] | None = None, hello_timeout_s: float = 30.0
    ) -> None:
        environ = os.environ if environ is None else environ
        self._changes = Worker(environ, hello_timeout_s=hello_timeout_s)
        self._queries = Worker(environ, hello_timeout_s=hello_timeout_s)

    async def hello(self) -> Hello:
        """Return what driver there is; start the process when there is none yet."""
        return await self._changes.hello()

    async def prepare(self) -> None:
        """Start both processes, so that nobody has to wait for that later."""
        with suppress(CallLost):
            await asyncio.gather(self._changes.hello(), self._queries.hello())

    async def state(self, pid: int, *, deadline_s: float) -> Reply:
        """Ask which state `pid` is in; asked again when the process died over it."""
        try:
            return await self._queries.ask("state", pid, deadline_s=deadline_s)
        except CallLost as lost:
            if lost.hung:
                raise
        return await self._queries.ask("state", pid, deadline_s=deadline_s)

    async def lock(self, pid: int, *, timeout_s: float, deadline_s: float) -> Reply:
        """Keep `pid` from calling CUDA; its work in flight is waited for up to `timeout_s`."""
        milliseconds = max(1, round(timeout_s * 1000))  # 0 would wait without end
        return await self._changes.ask("lock", pid, deadline_s=deadline_s, timeout_ms=milliseconds)

    async def checkpoint(self, pid: int, *, deadline_s: float) -> Reply:
        """Move the memory of the locked `pid` from its GPUs into its RAM."""
        return await self._changes.ask("checkpoint", pid, deadline_s=deadline_s)

    async def restore(self, pid: int, *, deadline_s: float) -> Reply:
        """Move it back; never without enough free memory on the GPUs."""
        return await self._changes.ask("restore", pid, deadline_s=deadline_s)

    async def unlock(self, pid: int, *, deadline_s: float) -> Reply:
        """Let `pid` call CUDA again."""
        return await self._changes.ask("unlock", pid, deadline_s=deadline_s)

    async def aclose(self) -> None:
        """End both processes; operations that run go on to their end."""
        await self._changes.aclose()
        await self._queries.aclose()


class Worker:
    """One CUDA process, started when it is first needed and again when it is lost."""

    def __init__(self, environ: Mapping[str, str], *, hello_timeout_s: float) -> None:
        self._environ = process_environment(environ)
        self._hello_timeout_s = hello_timeout_s
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._hello = Hello()
        self._leaving: list[Process] = []
        self._closed = False
        self._next_id = 0

    @property
    def pid(self) -> int | None:
        """The pid of the process, when there is one."""
        return self._process.pid if self._process else None

    async def hello(self) -> Hello:
        """Return what the process said at its start."""
        async with self._turn:
            await self._running()
            return self._hello

    async def ask(
        self, op: Operation, pid: int, *, deadline_s: float, timeout_ms: int = 0
    ) -> Reply:
        """Make one call and return how it went; the process of a lost call is killed."""
        async with self._turn:
            process = await self._running()
            self._next_id += 1
            order = Order(id=self._next_id, op=op, pid=pid, timeout_ms=timeout_ms)
            try:
                async with asyncio.timeout(deadline_s):
                    return await _exchange(process, order)
            except TimeoutError:
                self._give_up(process)
                why = f"the driver's {op} call took over {deadline_s:.3g} s"
                raise CallLost(why, hung=True) from None
            except (OSError, EOFError):
                code = await self._fate(process)
                raise CallLost(f"the driver's {op} call ended its process ({code})") from None
            except asyncio.CancelledError:
                self._give_up(process)  # its answer would be taken for that of the next call
                raise

    async def aclose(self) -> None:
        """End the process; one that hangs is killed and, within bounds, waited for."""
        self._closed = True
        process = self._process
        if process is not None and self._turn.locked():
            self._give_up(process)
        elif process is not None:
            self._let_go(process)
            _close_stdin(process)
        for process in self._leaving:
            await _see_off(process)
        self._leaving.clear()

    async def _running(self) -> Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        if self._closed:
            raise CallLost("llmsnap is about to end, and no more driver calls are made")
        command = [sys.executable, "-P", "-m", _MODULE]
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, env=self._environ
            )
        except OSError as error:
            raise CallLost(f"the CUDA process can't be started: {error}") from None
        self._process = process
        try:
            async with asyncio.timeout(self._hello_timeout_s):
                line = await _read_line(process)
        except TimeoutError:
            self._give_up(process)
            why = f"the driver doesn't come up within {self._hello_timeout_s:g} s; see `nvidia-smi`"
            raise CallLost(why, hung=True) from None
        except EOFError:
            self._give_up(process)
            raise CallLost("the CUDA process doesn't start; see its output on stderr") from None
        except asyncio.CancelledError:
            self._give_up(process)
            raise
        self._hello = msgspec.json.decode(line, type=Hello)
        return process

    def _give_up(self, process: Process) -> None:
        """Kill the process without waiting: inside a hung driver it may not even die."""
        _kill(process)
        self._let_go(process)

    def _let_go(self, process: Process) -> None:
        self._leaving = [other for other in self._leaving if other.returncode is None]
        self._leaving.append(process)
        self._process = None

    async def _fate(self, process: Process) -> str:
        self._let_go(process)
        await _see_off(process)
        return "still there" if process.returncode is None else f"exit code {process.returncode}"


async def _exchange(process: Process, order: Order) -> Reply:
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(order) + b"\n")
    await process.stdin.drain()
    return msgspec.json.decode(await _read_line(process), type=Reply)


async def _read_line(process: Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line


async def _see_off(process: Process) -> None:
    """Wait a moment for the end of a process that was told to go; kill it if it doesn't."""
    for _ in range(2):
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await process.wait()
                return
        _kill(process)
    logger.error("CUDA process %d was killed and doesn't end: is the driver stuck?", process.pid)


def _kill(process: Process) -> None:
    # Not `process.kill()`: that looks first whether it has ended, and so takes the exit code away
    # from asyncio, which then makes one up.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _close_stdin(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()


def process_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process of ours: it finds this package and sees every GPU."""
    ours = {key: value for key, value in environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    folders = [str(Path(__file__).parents[2]), environ.get("PYTHONPATH", "")]
    return {**ours, "PYTHONPATH": os.pathsep.join(folder for folder in folders if folder)}
