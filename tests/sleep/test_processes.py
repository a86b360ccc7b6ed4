"""What /proc tells of processes, of real ones."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from llmsnap.sleep.processes import family, look, raise_oom_score, set_oom_score
from tests.helpers.waiting import eventually


def test_looks_at_a_process() -> None:
    """This one runs, and is nobody else's namesake."""
    seen = look(os.getpid())
    assert seen is not None
    assert (seen.pid, seen.parent) == (os.getpid(), os.getppid())
    assert not seen.stopped
    assert not seen.dead
    assert look(2**22 + 1) is None


async def test_sees_that_a_process_is_stopped() -> None:
    """By a signal, until it is continued."""
    process = await asyncio.create_subprocess_exec("sleep", "60")

    def stopped() -> bool:
        seen = look(process.pid)
        return seen is not None and seen.stopped

    process.send_signal(signal.SIGSTOP)
    await eventually(stopped)
    process.send_signal(signal.SIGCONT)
    await eventually(lambda: not stopped())
    process.kill()
    await process.wait()


async def test_a_family_is_all_below_a_process() -> None:
    """Children and theirs; a process that isn't there has none."""
    script = "sleep 60 & sh -c 'sleep 61 & wait' & wait"
    process = await asyncio.create_subprocess_exec("sh", "-c", script, start_new_session=True)
    await eventually(lambda: len(family(process.pid)) == 4)
    assert family(process.pid)[0].pid == process.pid
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await eventually(lambda: family(process.pid) == [])


async def test_the_kernel_can_be_told_whom_to_kill_first() -> None:
    """The score goes up, at most to the top, and back again."""
    process = await asyncio.create_subprocess_exec("sleep", "60")
    score = Path(f"/proc/{process.pid}/oom_score_adj")
    before = int(score.read_text())

    assert raise_oom_score(process.pid, 300) == before
    assert int(score.read_text()) == before + 300
    raise_oom_score(process.pid, 2000)
    assert int(score.read_text()) == 1000
    set_oom_score(process.pid, before)
    assert int(score.read_text()) == before

    process.kill()
    await process.wait()
    assert raise_oom_score(process.pid, 300) is None
    set_oom_score(process.pid, before)
