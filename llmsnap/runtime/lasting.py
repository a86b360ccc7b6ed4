"""Processes that may outlive the proxy: how ours are started, and inherited ones watched.

Event loops won't do: asyncio's and uvloop kill the children that they still have when they close.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from llmsnap.errors import StartFailed
from llmsnap.runtime.proctable import ON_LINUX, read_entry

UNKNOWN_EXIT: Final = 256
"""Stands for an exit code that only the parent was told; none is as large."""


class Lasting:
    """A living process, held by a descriptor that can't come to mean another one.

    Its end is noticed at once. `reap` returns its exit code then. Raises OSError.
    """

    def __init__(self, pid: int, reap: Callable[[], int] = lambda: UNKNOWN_EXIT) -> None:
        self.pid = pid
        self._reap = reap
        self._handle = os.pidfd_open(pid)
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._handle, self._end)

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Return its exit code once it has ended."""
        return await asyncio.shield(self._ended)

    def let_go(self) -> None:
        """Watch it no longer; it runs on. Safe to call twice."""
        if self._handle >= 0:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _end(self) -> None:
        self.let_go()
        self._ended.set_result(self._reap())


def can_last() -> bool:
    """Whether this system lets us watch processes that aren't our children."""
    with suppress(OSError, AttributeError):
        os.close(os.pidfd_open(os.getpid()))
        return ON_LINUX
    return False


def spawn(program: str, words: Sequence[str], env: Mapping[str, str], output: int) -> Lasting:
    """Start a process in a session of its own that isn't ended by the end of ours; raise OSError.

    Takes a millisecond or two.
    """
    pid = os.posix_spawn(
        program,
        [program, *words],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these
    )
    return Lasting(pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def inherited(pid: int, started: float) -> Lasting:
    """Return the process with `pid` that began at `started`; raise StartFailed when it's gone."""
    try:
        lasting = Lasting(pid)
    except OSError as error:
        raise StartFailed(f"pid {pid} can't be watched: {error.strerror}") from None
    entry = read_entry(pid)
    if entry is None or entry.zombie or entry.started != started:
        lasting.let_go()
        raise StartFailed(f"pid {pid} has ended")
    return lasting
