"""What is done about conversations when a process sleeps, wakes and ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from llmsnap.core.lifecycle import Trigger
from llmsnap.runtime.conversations import NoConversations
from llmsnap.runtime.runner import Runner
from llmsnap.runtime.upstream import Upstream
from tests.helpers.waiting import eventually
from tests.runtime.resting import Chooser, Driver
from tests.runtime.rig import Rig, plan


class Keeping(NoConversations):
    """Notes what it is told, and takes as long over a save as the test wants."""

    wake_s = 10.0

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.may_save = asyncio.Event()
        self.may_save.set()
        self.wants_waking = False

    async def before_sleep(self, process: Upstream, *, loses_cache: bool) -> None:
        """Save."""
        self.heard.append("before a sleep that loses it" if loses_cache else "before a sleep")
        await self.may_save.wait()

    def lost(self, process: Upstream) -> None:
        """It was."""
        self.heard.append("lost")

    def is_worth_waking(self, process: Upstream) -> bool:
        """As the test wants."""
        return self.wants_waking

    async def before_stop(self, process: Upstream) -> None:
        """Save."""
        self.heard.append("before a stop")


@pytest.fixture
def keeping() -> Keeping:
    """Whoever keeps them."""
    return Keeping()


async def up(rig: Rig, keeping: Keeping, driver: Driver) -> Runner:
    """A model that can sleep."""
    tools = replace(rig.tools(), conversations=keeping)
    runner = rig.runners["a"] = Runner(plan(), tools, chooser=Chooser(driver))
    runner.start(1)
    await rig.reported(Trigger.READY)
    return runner


@pytest.mark.parametrize("keeps", [True, False])
async def test_they_are_saved_before_a_sleep(rig: Rig, keeping: Keeping, keeps: bool) -> None:
    """And it is told when the cache is gone."""
    driver = Driver()
    driver.keeps_state = keeps
    runner = await up(rig, keeping, driver)
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    runner.wake()
    await rig.reported(Trigger.WOKEN)

    lost = ["before a sleep that loses it", "lost"]
    assert keeping.heard == (["before a sleep"] if keeps else lost)


async def test_a_stop_in_the_middle_of_that_save_leaves_the_process_awake(
    rig: Rig, keeping: Keeping
) -> None:
    """It is saved as others are that stop, and obeys a signal."""
    driver = Driver()
    runner = await up(rig, keeping, driver)
    keeping.may_save.clear()
    runner.sleep()
    await eventually(lambda: keeping.heard == ["before a sleep"], what="it is saved")
    runner.stop()
    await rig.reported(Trigger.EXITED)

    assert keeping.heard == ["before a sleep", "before a stop"]
    assert driver.calls == []


@pytest.mark.parametrize(("wants", "fails"), [(False, False), (True, False), (True, True)])
async def test_what_sleeps_is_woken_to_be_saved_if_that_is_wanted(
    rig: Rig, keeping: Keeping, wants: bool, fails: bool
) -> None:
    """Where it doesn't wake it is ended as it is."""
    driver = Driver()
    runner = await up(rig, keeping, driver)
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    keeping.wants_waking = wants
    if fails:
        driver.error = OSError("no room")
    runner.stop()
    await rig.reported(Trigger.EXITED)

    assert [what for what, _ in driver.calls] == (["sleep", "wake"] if wants else ["sleep"])
    assert ("before a stop" in keeping.heard) == (wants and not fails)


async def test_a_process_that_wakes_too_slowly_is_ended_unsaved(
    rig: Rig, keeping: Keeping, caplog: pytest.LogCaptureFixture
) -> None:
    """The time for it is bounded."""
    driver = Driver()
    runner = await up(rig, keeping, driver)
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    keeping.wants_waking, keeping.wake_s = True, 0.05
    driver.may_end.clear()
    runner.stop()
    await rig.reported(Trigger.EXITED)

    assert "isn't woken to be saved: not within 0.05 s" in caplog.text
    assert "before a stop" not in keeping.heard
