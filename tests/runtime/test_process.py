from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from llmsnap.errors import StartFailed
from llmsnap.runtime.logs import LogPipe
from llmsnap.runtime.process import (
    Child,
    Command,
    Farewell,
    describe_exit,
    end,
    find_program,
    launch,
    signal_group,
)
from llmsnap.runtime.proctable import ON_LINUX, carries, read_table
from tests.helpers.processes import lives
from tests.helpers.waiting import eventually
from tests.runtime.rig import CHILDREN, PROXY_LIKE, children, loop_name

GONE = Farewell(grace_s=0)


@dataclass
class Started:
    """A child and what it printed."""

    child: Child
    output: bytearray = field(default_factory=bytearray)

    def pids(self) -> list[int]:
        """The pids that it printed as `pid N`."""
        return [int(pid) for pid in re.findall(rb"pid (\d+)\n", self.output)]


@asynccontextmanager
async def started(*argv: str, **env: str) -> AsyncIterator[Started]:
    """Run `argv`; end it afterwards."""
    output = bytearray()
    pipe = LogPipe(output.extend)
    command = Command(argv=argv, env={**os.environ, **env})
    child = await launch(command, output=pipe.write_end, mark=os.urandom(8).hex())
    pipe.close_write_end()
    try:
        yield Started(child, output)
    finally:
        await end(child, GONE)
        pipe.close()


def shell(script: str) -> tuple[str, ...]:
    """A real shell that runs `script`."""
    return ("/bin/sh", "-c", script)


def python(code: str) -> tuple[str, ...]:
    """A quick Python."""
    return (sys.executable, "-S", "-c", code)


async def test_a_child_leads_its_own_session_with_no_input() -> None:
    """Group and session are its own, its input is empty, both outputs reach us."""
    async with started(*shell("cat; echo out; echo err >&2; exec sleep 60")) as it:
        assert os.getsid(it.child.pid) == os.getpgid(it.child.pid) == it.child.pid
        await eventually(lambda: it.output == b"out\nerr\n")
        assert it.child.exit_code is None


async def test_the_exit_code_is_known_at_once() -> None:
    """Waiting returns as soon as the child has ended."""
    async with started(*shell("exit 7")) as it, asyncio.timeout(30):
        assert await it.child.wait() == 7
        assert it.child.exit_code == 7


async def test_a_grandchild_that_holds_our_pipe_does_not_delay_the_end() -> None:
    """The leader is dead though a grandchild lives on with both outputs open."""
    async with started(*shell("sleep 60 & echo pid $!; exit 3")) as it, asyncio.timeout(30):
        assert await it.child.wait() == 3
        await eventually(lambda: bool(it.pids()))
        assert lives(it.pids()[0])
        await end(it.child, Farewell(grace_s=5))
        assert not lives(it.pids()[0])


async def test_an_obedient_process_ends_by_the_signal() -> None:
    """No grace is used up, nothing is killed."""
    async with started("sleep", "60") as it, asyncio.timeout(30):
        await end(it.child, Farewell(grace_s=60))
        assert it.child.exit_code == -signal.SIGTERM


async def test_a_stop_signal_of_ones_own() -> None:
    """`stopSignal` is what is sent."""
    code = (
        "import os, signal; signal.signal(2, lambda *_: os._exit(5)); print('pid', 1, flush=True)"
    )
    async with started(*python(f"{code}; signal.pause()")) as it, asyncio.timeout(30):
        await eventually(lambda: bool(it.pids()))
        await end(it.child, Farewell(grace_s=60, signum=signal.SIGINT))
        assert it.child.exit_code == 5


IGNORES_TERM = "import signal,time; signal.signal(15, signal.SIG_IGN); print('pid', 1, flush=True)"


async def test_what_ignores_the_signal_is_killed_after_the_grace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SIGKILL follows, and the log says so."""
    async with started(*python(f"{IGNORES_TERM}; time.sleep(60)")) as it:
        await eventually(lambda: bool(it.pids()))
        async with asyncio.timeout(30):
            await end(it.child, Farewell(grace_s=0.1))
        assert it.child.exit_code == -signal.SIGKILL
        assert f"pid {it.child.pid} is still there after 0.1 s" in caplog.text


async def test_kill_false_is_never_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its own end is waited for, beyond the grace; a cancelled caller leaves it running."""
    code = f"{IGNORES_TERM}; import os; os.read(os.open(os.environ['GATE'], os.O_RDONLY), 1)"
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    how = Farewell(grace_s=0.05, kill=False)
    async with started(*python(code), GATE=str(gate)) as it:
        await eventually(lambda: bool(it.pids()))
        ending = asyncio.ensure_future(end(it.child, how))
        await eventually(lambda: "is still there" in caplog.text)
        assert it.child.exit_code is None
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert lives(it.child.pid)
        ending = asyncio.ensure_future(end(it.child, how))
        await asyncio.to_thread(gate.write_bytes, b"x")
        async with asyncio.timeout(30):
            await ending
        assert it.child.exit_code == 0


async def test_a_cancelled_end_skips_the_grace_and_still_reaps() -> None:
    """Who hurries leaves no process and no zombie."""
    async with started(*python(f"{IGNORES_TERM}; time.sleep(60)")) as it:
        await eventually(lambda: bool(it.pids()))
        ending = asyncio.ensure_future(end(it.child, Farewell(grace_s=60)))
        await asyncio.sleep(0)
        ending.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await ending
        assert it.child.exit_code == -signal.SIGKILL
        assert not psutil.pid_exists(it.child.pid)


@pytest.mark.parametrize("where", ["group", "session"])
async def test_grandchildren_are_ended_wherever_they_went(where: str) -> None:
    """A wrapper's real server is ended too, also in a session of its own."""
    argv = (str(CHILDREN / "serve.py"), "0", "--grandchild", where)
    async with started(sys.executable, "-S", *argv) as it:
        await eventually(lambda: bool(it.pids()))
        server = it.pids()[0]
        assert (os.getsid(server) == it.child.pid) is (where == "group")
        await end(it.child, Farewell(grace_s=5))
        assert not lives(server)


async def test_a_daemon_that_left_everything_is_found_by_its_mark() -> None:
    """Two forks and a session of its own: no parent, group or session leads to it any more."""
    if not ON_LINUX:
        pytest.skip("needs /proc")
    code = (
        "import os,time\n"
        "if os.fork(): time.sleep(60)\n"
        "os.setsid(); leader = os.getpid()\n"
        "if os.fork(): os._exit(0)\n"
        "while os.getppid() == leader: time.sleep(0.01)\n"
        "print('pid', os.getpid(), flush=True); time.sleep(60)"
    )
    async with started(*python(code)) as it:
        await eventually(lambda: bool(it.pids()))
        daemon = it.pids()[0]
        assert os.getsid(daemon) != it.child.pid
        await end(it.child, Farewell(grace_s=5))
        assert not lives(daemon)


async def test_a_member_is_asked_once() -> None:
    """Many servers take a second SIGTERM as `now`."""
    code = (
        "import os,signal,time\n"
        "signal.signal(15, lambda *_: os.write(1, b'term %d\\n' % os.getpid()))\n"
        "if os.fork() == 0: os.setpgid(0, 0)\n"
        "os.write(1, b'pid %d\\n' % os.getpid())\n"
        "while True: time.sleep(60)"
    )
    async with started(*python(code)) as it:
        await eventually(lambda: len(it.pids()) == 2)
        ending = asyncio.ensure_future(end(it.child, Farewell(grace_s=60)))
        await eventually(lambda: it.output.count(b"term") >= 2)
        await asyncio.sleep(0.1)  # a second signal would be on its way by now
        ending.cancel()
        await asyncio.wait({ending})
        assert sorted(re.findall(rb"term (\d+)", it.output)) == sorted(
            str(pid).encode() for pid in it.pids()
        )


async def test_a_stop_command_runs_instead_of_the_signal() -> None:
    """It gets the pid and the model's environment, its output is kept, and it may use any means."""
    printed = bytearray()
    script = 'echo "stop ${PID} $WORD"; kill -INT ${PID}'
    async with started(*python(f"{IGNORES_TERM}; time.sleep(60)"), WORD="flag") as it:
        await eventually(lambda: bool(it.pids()))
        how = Farewell(grace_s=60, stop_argv=shell(script), output=printed.extend)
        async with asyncio.timeout(30):
            await end(it.child, how)
        assert it.child.exit_code in (-signal.SIGINT, 1)
        assert printed == b"stop %d flag\n" % it.child.pid


@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 4", "exit code 4"), (None, "doesn't exist")],
    ids=["fails", "isn't there"],
)
async def test_a_stop_command_that_fails_is_told_and_the_signal_follows(
    script: str | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The process doesn't have to wait for SIGKILL because of it."""
    argv = shell(script) if script else ("/no/such/stopper",)
    async with started("sleep", "60") as it, asyncio.timeout(30):
        await end(it.child, Farewell(grace_s=60, stop_argv=argv))
        assert it.child.exit_code == -signal.SIGTERM
    assert said in caplog.text
    assert "it gets SIGTERM" in caplog.text


async def test_a_stop_command_that_hangs_cannot_hold_up_the_end() -> None:
    """The grace bounds it, and it is ended with its own children."""
    async with started("sleep", "60") as it, asyncio.timeout(30):
        await end(it.child, Farewell(grace_s=0.5, stop_argv=shell("sleep 61 & wait")))
        assert it.child.exit_code == -signal.SIGKILL
    assert not any(carries(pid, f"{it.child.mark}-stop") for pid in read_table())


async def test_a_stop_command_that_outlives_its_process_is_ended() -> None:
    """Once the process is gone it has a moment to tidy up, not the rest of the grace."""
    async with started("sleep", "60") as it, asyncio.timeout(30):
        how = Farewell(grace_s=60, stop_argv=shell("kill ${PID}; exec sleep 61"))
        await end(it.child, how)
        assert it.child.exit_code == -signal.SIGTERM


async def test_no_zombies() -> None:
    """Twenty children, ended in twos, are all reaped."""
    before = children()
    async with AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(started("sleep", "60"))
            await stack.enter_async_context(started("true"))
        assert len(children() - before) >= 10
    assert children() <= before


async def test_orphans_that_come_to_us_are_reaped() -> None:
    """As a container's init we inherit a wrapper's children, and nobody else would reap them."""
    if not ON_LINUX:
        pytest.skip("only Linux has subreapers")
    subreaper, libc = 36, ctypes.CDLL(None)
    libc.prctl(subreaper, 1, 0, 0, 0)
    try:
        async with started(*shell("sleep 60 & echo pid $!; exit 0")) as it:
            await it.child.wait()
            await eventually(lambda: bool(it.pids()))
            orphan = it.pids()[0]
            assert psutil.Process(orphan).ppid() == os.getpid()
        await eventually(lambda: not psutil.pid_exists(orphan))
    finally:
        libc.prctl(subreaper, 0, 0, 0, 0)


async def test_a_cancelled_launch_leaves_no_process() -> None:
    """Whichever step the cancellation meets."""
    before = children()
    pipe = LogPipe(lambda _: None)
    command = Command(argv=("sleep", "60"), env=os.environ)
    for steps in range(6):
        task = asyncio.ensure_future(
            launch(command, output=pipe.write_end, mark=os.urandom(8).hex())
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        try:
            child = await task
        except asyncio.CancelledError:
            continue
        await end(child, GONE)
    assert children() <= before
    pipe.close()


def command(*argv: str, path: str = "/usr/bin:/bin") -> Command:
    """A command with this PATH."""
    return Command(argv=argv, env={"PATH": path})


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "set `cmd`"),
        (("llama-servr",), "'llama-servr' is in none of the folders of PATH (/a:/b)"),
        (("/no/such/server",), "'/no/such/server' doesn't exist"),
        ((__file__,), "isn't an executable file"),
    ],
    ids=["empty", "unknown", "absent", "no program"],
)
def test_a_command_that_is_not_there_says_where_it_was_sought(
    argv: tuple[str, ...], said: str
) -> None:
    """The error names the command and the PATH that was searched: the model's own."""
    with pytest.raises(StartFailed) as caught:
        find_program(command(*argv, path="/a:/b"))
    assert said in str(caught.value)


def test_the_path_of_the_model_is_searched(tmp_path: Path) -> None:
    """`env: [PATH=…]` decides, not the proxy's own PATH."""
    program = tmp_path / "serve-it"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program(command("serve-it", path=str(tmp_path))) == str(program)


async def test_what_is_no_program_says_so(tmp_path: Path) -> None:
    """A script without its first line can't be run; uvloop leaves it to libc, which takes sh."""
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    if loop_name() == "uvloop":
        async with started(str(script)) as it:
            await eventually(lambda: it.output == b"hello\n")
        return
    with pytest.raises(StartFailed, match="neither a program nor a script"):
        async with started(str(script)):
            pass


@pytest.mark.parametrize("group", [os.getpgrp(), 0, 1, -1])
def test_our_own_group_is_never_signalled(group: int) -> None:
    """Nor everybody's."""
    with pytest.raises(ValueError, match="none of our children's"):
        signal_group(group, signal.SIGKILL)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exit code 0"),
        (7, "exit code 7"),
        (-9, "killed by SIGKILL"),
        (-4, "killed by SIGILL (was it built for another processor?)"),
        (-63, "signal 63"),
    ],
)
def test_exit_codes_in_words(code: int, said: str) -> None:
    """A signal is named, and what one of them mostly means."""
    assert said in describe_exit(code)


async def test_u61_children_die_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """`kill -9` of the parent leaves no child, on Linux at once by the kernel's hand."""
    if not ON_LINUX:
        pytest.skip("only Linux has PR_SET_PDEATHSIG")
    argv = [*PROXY_LIKE, loop_name(), str(tmp_path), "sleep", "60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:  # noqa: ASYNC220
        assert parent.stdout is not None
        line = await asyncio.to_thread(parent.stdout.readline)
        child = int(line.split()[1])
        alive = lives(child)
        parent.kill()
        assert alive
        await eventually(lambda: not lives(child))
