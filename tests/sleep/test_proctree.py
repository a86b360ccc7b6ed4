"""Trees of real processes are stopped as one, and go on as one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from llmsnap.sleep import proctree
from llmsnap.sleep.offload import Deadline
from llmsnap.sleep.processes import Seen, look, threads
from tests.helpers.waiting import eventually
from tests.sleep.holder import holding, state

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_a_tree_stops_and_goes_on() -> None:
    """Parent and child are stopped when `stop` returns, and neither when `go_on` does."""
    async with holding(1, "--fork") as holder:
        await eventually(lambda: len(proctree.living(holder.pid)) == 2)

        stopped = proctree.stop(holder.pid, Deadline(60))
        assert [one.pid for one in stopped] == proctree.pids(holder.pid)
        assert stopped[0].pid == holder.pid
        assert {state(one.pid) for one in stopped} == {"T"}

        proctree.go_on(stopped, Deadline(60))
        assert "T" not in {state(one.pid) for one in stopped}


async def test_a_process_that_forks_all_the_time_is_stopped_with_all_its_children() -> None:
    """None escapes by being born while its parent is stopped."""
    async with holding(1, "--spawn") as holder:
        for _ in range(20):
            await eventually(lambda: len(proctree.living(holder.pid)) > 2)
            stopped = await asyncio.to_thread(proctree.stop, holder.pid, Deadline(60))
            living = proctree.living(holder.pid)
            assert {one.letter for one in living} == {"T"}
            assert {one.pid for one in living} <= {one.pid for one in stopped}
            proctree.go_on(stopped, Deadline(60))


async def test_a_process_that_waits_in_the_kernel_counts_as_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as the parent of a `vfork` whose child is stopped: it wouldn't come out to stop."""
    async with holding(1) as holder:
        seen = look(holder.pid)
        assert seen is not None
        waiting = replace(seen, letter="D")
        monkeypatch.setattr(proctree, "look", lambda _: waiting)
        monkeypatch.setattr(proctree, "threads", lambda _: [waiting])
        assert [one.pid for one in proctree.stop(holder.pid, Deadline(1))] == [holder.pid]


async def test_a_process_is_stopped_when_its_last_thread_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first one stops first; until the others do, they may fork what nobody would stop."""
    looks: list[list[str]] = []

    def one_runs_on(pid: int) -> list[Seen]:
        found = threads(pid)
        if pid == holder.pid:
            looks.append([one.letter for one in found])
            if len(looks) < 3:
                return [found[0], replace(found[1], letter="R")]
        return found

    async with holding(1, "--spawn") as holder:
        assert len(threads(holder.pid)) == 2
        monkeypatch.setattr(proctree, "threads", one_runs_on)
        proctree.stop(holder.pid, Deadline(60))
        assert len(looks) >= 3
        assert looks[-1] == ["T", "T"]


async def test_a_stopped_tree_obeys_sigkill() -> None:
    """No process of it needs to go on first."""
    async with holding(1, "--fork") as holder:
        await eventually(lambda: len(proctree.living(holder.pid)) == 2)
        stopped = proctree.stop(holder.pid, Deadline(60))
        proctree.signal_all(stopped, signal.SIGKILL)
        await asyncio.wait_for(holder.process.wait(), 60)
        await eventually(lambda: not any(map(proctree.lives, stopped)))


async def test_no_time_to_stop_means_to_go_on() -> None:
    """Nothing stays stopped half-way."""
    async with holding(1) as holder:
        with pytest.raises(TimeoutError):
            proctree.stop(holder.pid, _Impatient())
        await eventually(lambda: holder.state == "S")


async def test_who_got_the_pid_of_a_dead_process_is_spared() -> None:
    """A signal is for the process that was seen, not for its number."""
    async with holding(1) as holder:
        seen = look(holder.pid)
        assert seen is not None
        another = replace(seen, started=seen.started - 1)
        assert not proctree.lives(another)
        proctree.signal_all([another], signal.SIGKILL)
        await holder.checksum()
        assert await holder.checksum()


async def test_nothing_to_stop() -> None:
    """A process that has ended has no tree."""
    async with holding(1) as holder:
        pid = holder.pid
    assert proctree.stop(pid, Deadline(1)) == []
    with pytest.raises(ProcessLookupError, match=f"pid {pid} has ended"):
        proctree.pids(pid)
    assert not proctree.living(pid)
    assert proctree.lives(look(os.getpid()))  # type: ignore[arg-type]


class _Impatient(Deadline):
    """Passes as soon as what was waited for has come."""

    def __init__(self) -> None:
        super().__init__(60)

    def wait(self, condition: Callable[[], bool]) -> None:
        super().wait(condition)
        raise TimeoutError
