"""Processes that outlive us: how their end is told, and that nothing of ours ends them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from llmsnap.errors import StartFailed
from llmsnap.runtime.lasting import UNKNOWN_EXIT, can_last, inherited, spawn
from llmsnap.runtime.proctable import read_entry
from tests.helpers.processes import lives

pytestmark = pytest.mark.skipif(not can_last(), reason="needs pidfds")


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", -9)])
async def test_the_exit_code_of_our_own_is_known(script: str, code: int) -> None:
    """As the event loop's own processes have it."""
    child = spawn("/bin/sh", ["-c", script], os.environ, 2)
    assert await child.wait() == child.returncode == code


async def test_the_end_of_anothers_is_noticed() -> None:
    """Though its exit code is its parent's alone."""
    with subprocess.Popen(["sleep", "60"]) as other:  # noqa: ASYNC220
        entry = read_entry(other.pid)
        assert entry is not None
        watched = inherited(other.pid, entry.started)
        assert watched.returncode is None
        other.kill()
        async with asyncio.timeout(30):
            assert await watched.wait() == UNKNOWN_EXIT
        with pytest.raises(StartFailed, match="has ended"):
            inherited(other.pid, entry.started)


async def test_a_pid_that_means_another_process_is_refused() -> None:
    """By its start time."""
    with pytest.raises(StartFailed, match="has ended"):
        inherited(os.getpid(), 1.0)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_it_lives_on_when_its_starter_ends(loop: str) -> None:
    """In order, and with it the event loop that it was started in."""
    code = (
        f"import {loop}, os\n"
        "from llmsnap.runtime.lasting import spawn\n"
        "async def main():\n"
        "    out = os.open(os.devnull, os.O_WRONLY)\n"
        "    print(spawn('/bin/sleep', ['60'], os.environ, out).pid)\n"
        f"{loop}.run(main())\n"
    )
    argv = [sys.executable, "-c", code]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    alive = lives(pid)
    os.kill(pid, signal.SIGKILL)
    assert alive
