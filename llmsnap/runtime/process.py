"""One child process in a session of its own: launch it, signal all that came from it, end it."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import functools
import logging
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL
from asyncio.subprocess import Process as OwnProcess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from llmsnap.errors import StartFailed
from llmsnap.runtime.lasting import UNKNOWN_EXIT, Lasting, spawn
from llmsnap.runtime.logs import LogPipe
from llmsnap.runtime.proctable import (
    MARK_VARIABLE,
    ON_LINUX,
    Table,
    family,
    read_entry,
    read_table,
)
from llmsnap.runtime.tasks import race, unbroken

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG: Final = 1
_STOP_COMMAND_REST_S: Final = 1.0
"""How long a stop command may go on tidying up once the process is gone."""
_PATIENCE_S: Final = 10.0
"""Before the first warning about a process that doesn't end; then twice as long each time."""
_MOST_PATIENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run, and the whole environment to run it in."""

    argv: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Farewell:
    """How a process is asked to end, and when it no longer is asked."""

    grace_s: float = 10.0
    signum: signal.Signals = signal.SIGTERM
    kill: bool = True
    """False: never SIGKILL; then its end is waited for, however long that takes."""
    stop_argv: Sequence[str] = ()
    """Run instead of the signal; `${PID}` in it becomes the pid."""
    output: Callable[[bytes], None] = lambda _: None
    """Takes what the stop command prints."""


class Process(Protocol):
    """What must be known of a process: asyncio's are such, and a `Lasting` is one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...


class Child:
    """A running process that leads its own session and group.

    Not `is_ours`: an earlier proxy started it, so that its pid may be given out anew once it ended.
    """

    def __init__(
        self, process: Process, mark: str, env: Mapping[str, str], *, is_ours: bool = True
    ) -> None:
        self.pid = process.pid
        self.mark = mark
        self.env = env
        entry = read_entry(process.pid)
        self.started = entry.started if entry else 0.0
        """In the unit of `proctable.Entry.started`."""
        self._process = process
        self._is_ours = is_ours

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Return its exit code once it has ended; what it left behind may still run."""
        return await self._process.wait()

    def family(self, table: Table | None = None) -> set[int]:
        """Return the pids of all that came from it and live, itself included."""
        if table is None:
            table = read_table()
        self._reap_adopted(table)
        return family(
            table,
            pid=self.pid,
            started=self.started,
            mark=self.mark,
            session_is_ours=self._is_ours,
        )

    def _reap_adopted(self, table: Table) -> None:
        """Reap what its end made ours: orphans come to us when we are a container's init."""
        ours = [e for e in table.values() if e.zombie and e.parent == os.getpid()]
        for entry in ours:
            if entry.session == self.pid != entry.pid:
                with suppress(ChildProcessError):
                    os.waitpid(entry.pid, os.WNOHANG)

    async def gone(self) -> None:
        """Wait until it and all that came from it have ended."""
        await self.wait()
        pause_s = 0.01
        while self.family():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)

    def let_go(self) -> None:
        """Watch it no longer; it must have been launched as lasting, and runs on."""
        assert isinstance(self._process, Lasting)
        self._process.let_go()

    def signal(self, signum: signal.Signals) -> None:
        """Send `signum` to its group, and once to each of its family who left the group."""
        table = read_table()
        members = self.family(table)
        grouped = {pid for pid in members if table[pid].group == self.pid}
        if grouped:
            signal_group(self.pid, signum)
        signal_each(members - grouped, table, signum)


async def launch(
    command: Command,
    *,
    output: int,
    mark: str,
    death_signal: signal.Signals = signal.SIGKILL,
    lasting: bool = False,
) -> Child:
    """Start `command` with both outputs going to the descriptor `output`.

    On Linux the kernel sends it `death_signal` when this process dies; `lasting`: it lives on. Its
    descendants carry `mark` in their environment. Raises StartFailed. A cancelled caller leaves no
    process behind.
    """
    program, env = find_program(command), {**command.env, MARK_VARIABLE: mark}
    try:
        if lasting:
            return Child(spawn(program, command.argv[1:], env, output), mark, command.env)
        process = await unbroken(
            _spawn(program, command.argv[1:], env, output, death_signal), undo=_kill_at_once
        )
    except OSError as error:
        raise StartFailed(f"{program!r} can't be run: {_reason(error)}") from None
    return Child(process, mark, command.env)


async def _spawn(
    program: str,
    words: Sequence[str],
    env: Mapping[str, str],
    output: int,
    death_signal: signal.Signals,
) -> OwnProcess:
    return await asyncio.create_subprocess_exec(
        program,
        *words,
        env=env,
        stdin=DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=_die_with_parent(death_signal),
    )


async def end(child: Child, how: Farewell) -> None:
    """End `child` and all that came from it, and reap it.

    It is asked, then after the grace killed. A cancelled caller skips the grace: the kill and the
    reaping still happen.
    """
    try:
        async with asyncio.timeout(how.grace_s):
            await _ask(child, how)
            await child.gone()
    except TimeoutError:
        if how.grace_s:
            logger.warning("pid %d is still there after %g s", child.pid, how.grace_s)
        if not how.kill:
            await _outlast(child)
    finally:
        if how.kill:
            child.signal(signal.SIGKILL)
            await _reap(child)


async def _ask(child: Child, how: Farewell) -> None:
    if not how.grace_s and how.kill:
        return
    if how.stop_argv and child.exit_code is None:

        async def ended() -> bool:
            await child.gone()
            await asyncio.sleep(_STOP_COMMAND_REST_S)
            return True

        if await race(_run_stop_command(child, how), ended()):
            return
    child.signal(how.signum)


async def _run_stop_command(child: Child, how: Farewell) -> bool:
    """Run the stop command; return whether it did well."""
    argv = [word.replace("${PID}", str(child.pid)) for word in how.stop_argv]
    pipe = LogPipe(how.output)
    try:
        command = Command(argv=argv, env=child.env)
        # Another mark than the child's: it isn't one of those that must be gone.
        stopper = await launch(command, output=pipe.write_end, mark=f"{child.mark}-stop")
        try:
            pipe.close_write_end()
            code = await stopper.wait()
        finally:
            await end(stopper, Farewell(grace_s=0))
    except StartFailed as error:
        logger.warning("cmdStop for pid %d: %s; it gets %s", child.pid, error, how.signum.name)
        return False
    finally:
        pipe.close()
    if code:
        text = describe_exit(code)
        logger.warning("cmdStop for pid %d: %s; it gets %s", child.pid, text, how.signum.name)
    return code == 0


async def _outlast(child: Child) -> None:
    for patience_s in _patience():
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                return await child.gone()
        logger.warning("pid %d doesn't end, and `kill: false` spares it; waiting", child.pid)


async def _reap(child: Child) -> None:
    """Wait until what was killed is gone; say so when the kernel doesn't let go of it."""
    for patience_s in _patience():
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                return await child.gone()
        logger.error("pid %d was killed and doesn't end: is a driver stuck?", child.pid)
        child.signal(signal.SIGKILL)


def _patience() -> Iterator[float]:
    """Yield how long to wait before each warning; without an end."""
    patience_s = _PATIENCE_S
    while True:
        yield patience_s
        patience_s = min(2 * patience_s, _MOST_PATIENCE_S)


async def _kill_at_once(process: OwnProcess) -> None:
    signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def signal_group(group: int, signum: signal.Signals) -> None:
    """Send `signum` to a process group that isn't ours; one that is gone is fine."""
    if group <= 1 or group == os.getpgrp():
        raise ValueError(f"group {group} is none of our children's")
    # macOS refuses with EPERM when nothing but zombies is left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def signal_each(pids: Iterable[int], table: Table, signum: signal.Signals) -> None:
    """Send `signum` to each of `pids` that is still the process which `table` shows."""
    for pid in pids:
        entry = read_entry(pid)
        if entry is None or entry.started != table[pid].started or pid == os.getpid():
            continue
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def find_program(command: Command) -> str:
    """Return the path of the program that `command` runs; raise StartFailed when there is none."""
    if not command.argv or not command.argv[0]:
        raise StartFailed("there is no command to run; set `cmd`")
    name = command.argv[0]
    searched = command.env.get("PATH") or os.defpath
    if found := shutil.which(name, path=searched):
        return found
    if os.sep not in name:
        raise StartFailed(
            f"{name!r} is in none of the folders of PATH ({searched}); write its full path, "
            "or set PATH in the model's `env`"
        )
    fault = "isn't an executable file" if Path(name).exists() else "doesn't exist"
    raise StartFailed(f"{name!r} {fault}; correct the path in `cmd`")


def gave_code(code: int) -> bool:
    """Whether an exit code as `Child.wait` gives it is the process's own."""
    return 0 <= code < UNKNOWN_EXIT


def describe_exit(code: int) -> str:
    """Return words for an exit code as `Child.wait` gives it."""
    if code == UNKNOWN_EXIT:
        return "only the proxy that started it would have been told its exit code"
    if gave_code(code):
        return f"exit code {code}"
    if -code == signal.SIGILL:
        return "killed by SIGILL (was it built for another processor?)"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOEXEC:
        return "it is neither a program nor a script with a first line such as `#!/bin/sh`"
    return error.strerror or str(error)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _die_with_parent(signum: signal.Signals) -> Callable[[], None] | None:
    """Return what a forked child must call so that it dies with us; None where there is no such.

    The kernel looks at the *thread* that forked: only the main thread may launch.
    """
    if not ON_LINUX:
        return None
    prctl, us = _libc().prctl, os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
        if os.getppid() != us:  # it died before the line above
            os._exit(1)

    return before_exec
