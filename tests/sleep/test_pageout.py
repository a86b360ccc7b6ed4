"""The page-out driver on a process with memory of known content: what it promises, and its faults.

With real servers, see test_pageout_server.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from llmsnap.errors import SleepFailed, SleepRefused, WakeFailed
from llmsnap.memory.host import Host
from llmsnap.memory.kernel import Room
from llmsnap.sleep import pageable, pager
from llmsnap.sleep.driver import Supported, Unsupported, Verdict
from llmsnap.sleep.offload import Pace
from llmsnap.sleep.pageable import Machine
from llmsnap.sleep.pageout import PageOutDriver
from tests.helpers.waiting import eventually
from tests.sleep.holder import MIB, holding, state

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs Linux and CAP_SYS_NICE"
)

AT_ONCE = Pace(base_s=0, lowest_rate=1e18)


async def anyone(pids: Collection[int], host: str, port: int) -> bool:
    """Whoever is asked for listens."""
    return True


class Swap(Host):
    """This machine, but so much swap."""

    def __init__(self, total: int, free: int) -> None:
        super().__init__()
        self._room = Room(total, free)

    def swap(self, pid: int | None = None) -> Room:
        return self._room


@pytest.fixture
def driver() -> PageOutDriver:
    """The driver on this machine."""
    return PageOutDriver(Host(), anyone)


async def test_asleep_and_awake(swap: None, driver: PageOutDriver) -> None:
    """Stopped and out of memory; then it goes on, and all is as it was."""
    async with holding(64) as holder:
        before, target = await holder.checksum(), holder.target()

        out = await driver.sleep(target)
        assert holder.state == "T"
        left = holder.usage  # less the pages of Python's files, which others may use, too
        assert left.anonymous_bytes + left.shared_bytes < 8 * MIB
        assert out.bytes["host"] < -60 * MIB
        assert out.bytes["swap"] > 58 * MIB
        assert out.seconds > 0

        back = await driver.wake(target)
        assert holder.state != "T"
        assert back.bytes["host"] >= 64 * MIB
        assert -80 * MIB < back.bytes["swap"] <= -64 * MIB
        assert await holder.checksum() == before


async def test_a_wake_brings_back_what_was_used_since_the_last_but_one(
    swap: None, driver: PageOutDriver
) -> None:
    """The first wake maps nothing, so the next sleep sees what was used; the rest stays out."""
    async with holding(64) as holder:
        before, target = await holder.checksum(), holder.target()
        await driver.sleep(target)
        await driver.wake(target)
        await driver.sleep(target)
        unused = await driver.wake(target)
        assert unused.bytes["host"] < 16 * MIB

        assert await holder.checksum() == before
        await driver.sleep(target)
        used = await driver.wake(target)
        assert used.bytes["host"] >= 64 * MIB
        assert holder.usage.anonymous_bytes >= 64 * MIB  # mapped this time
        assert await holder.checksum() == before


async def test_a_new_generation_has_its_own_history(swap: None, driver: PageOutDriver) -> None:
    """Nothing is known of it, though the model is the same."""
    async with holding(16) as first:
        await driver.sleep(first.target())
        await driver.wake(first.target())
    async with holding(64) as second:
        target = second.target(generation=2)
        with pytest.raises(WakeFailed, match="nothing is known of its sleep"):
            await driver.wake(target)
        await driver.sleep(target)
        await driver.wake(target)
        assert second.usage.anonymous_bytes < 16 * MIB  # a first wake maps nothing
        await second.checksum()


async def test_asleep_already(swap: None, driver: PageOutDriver) -> None:
    """There is nothing to do, and what the first sleep noted isn't lost."""
    async with holding(64) as holder:
        before, target = await holder.checksum(), holder.target()
        await driver.sleep(target)
        again = await driver.sleep(target)
        assert dict(again.bytes) == {}
        assert (await driver.wake(target)).bytes["host"] >= 64 * MIB
        with pytest.raises(WakeFailed):
            await driver.wake(target)
        assert await holder.checksum() == before


async def test_swap_is_short(driver: PageOutDriver) -> None:
    """The process isn't touched; the figures are in the reason."""
    async with holding(64) as holder:
        short = PageOutDriver(Swap(100 * MIB, 30 * MIB), anyone)
        verdict = await short.probe(holder.target())
        assert isinstance(verdict, Unsupported)
        with pytest.raises(SleepRefused, match="30 MiB of 100 MiB are left") as refused:
            await short.sleep(holder.target())
        assert refused.value.intact
        assert holder.state != "T"
        assert holder.usage.anonymous_bytes >= 64 * MIB


async def test_two_dont_count_on_the_same_swap(swap: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first will take is gone for the second; once it is there, the kernel says so."""
    judge = pager.verdict

    def slowly(machine: Machine, pids: Sequence[int], **more: Any) -> Verdict:
        verdict = judge(machine, pids, **more)
        time.sleep(0.1)  # time for the other one to judge as well, if it may
        return verdict

    monkeypatch.setattr(pager, "verdict", slowly)
    both = PageOutDriver(Swap(500 * MIB, 100 * MIB), anyone)
    async with holding(64) as one, holding(64) as other:
        targets = one.target(), other.target()
        outcomes = await asyncio.gather(*map(both.sleep, targets), return_exceptions=True)
        assert sum(isinstance(outcome, SleepRefused) for outcome in outcomes) == 1
        assert sorted([one.state == "T", other.state == "T"]) == [False, True]


async def test_what_cant_go_out_goes_on(swap: None, driver: PageOutDriver) -> None:
    """Two processes that share their memory keep it in RAM; neither stays stopped."""
    async with holding(64, "--fork") as holder:
        await eventually(lambda: len(Host().tree(holder.pid)) == 2)
        before = await holder.checksum()
        with pytest.raises(SleepRefused, match="stay in memory"):
            await driver.sleep(holder.target())
        assert holder.state != "T"
        assert await holder.checksum() == before


async def test_too_slow_a_disk_for_a_sleep(swap: None) -> None:
    """It goes on."""
    async with holding(64) as holder:
        with pytest.raises(SleepFailed):
            await PageOutDriver(Host(), anyone, pace=AT_ONCE).sleep(holder.target())
        await eventually(lambda: holder.state == "S")


async def test_too_slow_a_disk_for_a_wake(
    swap: None, driver: PageOutDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is no good then, and it must die even though it is stopped."""
    async with holding(64) as holder:
        await driver.sleep(holder.target())
        monkeypatch.setattr(driver, "_pace", AT_ONCE)
        with pytest.raises(WakeFailed, match="too slow"):
            await driver.wake(holder.target())
        assert holder.state == "T"
        os.kill(holder.pid, signal.SIGKILL)
        await asyncio.wait_for(holder.process.wait(), 60)


async def test_a_kernel_that_hangs(
    swap: None, driver: PageOutDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is told in time, and nothing else waits for it."""
    let_go = threading.Event()
    monkeypatch.setattr(pager, "page_out", lambda *_: let_go.wait(60))
    monkeypatch.setattr("llmsnap.sleep.offload._GRACE_S", 0.05)
    monkeypatch.setattr(driver, "_pace", Pace(base_s=0.05, lowest_rate=1e18))
    async with holding(1) as holder:
        with pytest.raises(SleepFailed) as failed:
            await driver.sleep(holder.target())
        assert not failed.value.intact
        let_go.set()


async def test_killed_while_asleep(swap: None, driver: PageOutDriver) -> None:
    """By the kernel, say, when memory ran out: it is not woken, and not served from."""
    async with holding(16) as holder:
        await driver.sleep(holder.target())
        os.kill(holder.pid, signal.SIGKILL)
        await holder.process.wait()
        with pytest.raises(WakeFailed, match="ended while it was asleep"):
            await driver.wake(holder.target())


async def test_a_process_below_it_killed_while_asleep(swap: None, driver: PageOutDriver) -> None:
    """Without it the server isn't whole."""
    async with holding(16, in_shell=True) as holder:
        await driver.sleep(holder.target())
        _, below = Host().tree(holder.pid)
        os.kill(below, signal.SIGKILL)
        await eventually(lambda: state(below) in ("Z", ""))
        with pytest.raises(WakeFailed, match=f"pid {below} of it has ended"):
            await driver.wake(holder.target())


async def test_it_has_ended(driver: PageOutDriver) -> None:
    """Before anything was done."""
    async with holding(1) as holder:
        gone = holder.target()
    verdict = await driver.probe(gone)
    assert isinstance(verdict, Unsupported)
    assert "has ended" in verdict.reason
    with pytest.raises(SleepFailed, match="has ended"):
        await driver.sleep(gone)


async def test_a_cancelled_sleep_leaves_nobody_stopped(
    swap: None, driver: PageOutDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who cancels ends the process; but if it lives, it isn't frozen for ever."""
    begun, cancelled = threading.Event(), threading.Event()
    real = pager.in_memory

    def slow(pids: Collection[int]) -> list[pager.Memory]:
        begun.set()
        assert cancelled.wait(60)
        return real(pids)

    monkeypatch.setattr(pager, "in_memory", slow)
    async with holding(16) as holder:
        sleeping = asyncio.ensure_future(driver.sleep(holder.target()))
        await eventually(begun.is_set)
        assert holder.state == "T"
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        cancelled.set()
        await eventually(lambda: holder.state == "S")
        with pytest.raises(WakeFailed, match="nothing is known of its sleep"):
            await driver.wake(holder.target())


async def test_a_gpu_that_was_opened_since_it_was_asked(
    driver: PageOutDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked for once more before the process is stopped."""
    monkeypatch.setattr(pageable, "gpu_fault", lambda _: "it has a GPU")
    async with holding(1) as holder:
        assert await driver.probe(holder.target()) == Unsupported("it has a GPU")
        with pytest.raises(SleepRefused, match="it has a GPU"):
            await driver.sleep(holder.target())
        assert holder.state != "T"


async def test_another_system(driver: PageOutDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this exists elsewhere."""
    async with holding(1) as holder:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(sys, "platform", "darwin")
            verdict = await driver.probe(holder.target())
        assert isinstance(verdict, Unsupported)
        assert "darwin" in verdict.reason


async def test_what_it_promises(swap: None, driver: PageOutDriver) -> None:
    """The state is kept, requests survive, the bytes go to swap, and only SIGKILL ends it."""
    async with holding(16) as holder:
        verdict = await driver.probe(holder.target())
    assert isinstance(verdict, Supported)
    assert (verdict.tier, verdict.can_pause) == ("swap", True)
    assert 16 * MIB <= verdict.tier_bytes < 32 * MIB
    assert (driver.name, driver.keeps_state, driver.kill_only) == ("pageout", True, True)
    await driver.aclose()
