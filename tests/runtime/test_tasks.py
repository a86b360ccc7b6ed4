from __future__ import annotations

import asyncio
import logging

import pytest

from llmsnap.runtime.tasks import Background, race, unbroken
from tests.helpers.waiting import eventually


async def forever() -> None:
    """Never end by itself."""
    await asyncio.Event().wait()


async def test_tasks_are_kept_until_done_and_cancelled_together() -> None:
    """Closing cancels what still runs and waits for it."""
    background = Background()
    task = background.spawn(forever(), name="x")
    assert len(background) == 1
    await background.aclose()
    assert task.cancelled()
    assert len(background) == 0


async def test_to_settle_is_to_wait_but_not_for_ever() -> None:
    """What ends in time is waited for; what doesn't isn't cancelled."""
    background, may_end = Background(), asyncio.Event()
    await background.settle(60)
    ending = background.spawn(may_end.wait(), name="ends")
    asyncio.get_running_loop().call_soon(may_end.set)
    await background.settle(60)
    assert ending.done()
    lasting = background.spawn(forever(), name="lasts")
    await background.settle(0.01)
    assert not lasting.done()
    await background.aclose()


async def test_closing_waits_for_what_a_dying_task_spawns() -> None:
    """A task that spawns another in its `finally` leaves nothing behind either."""
    background = Background()
    late: list[asyncio.Task[None]] = []

    async def spawns_on_its_way_out() -> None:
        try:
            await forever()
        finally:
            late.append(background.spawn(forever(), name="late"))

    background.spawn(spawns_on_its_way_out(), name="early")
    await asyncio.sleep(0)
    await background.aclose()
    assert late[0].cancelled()


async def test_a_crash_is_logged_with_the_task_name(caplog: pytest.LogCaptureFixture) -> None:
    """A task that nobody awaits still can't fail in silence."""

    async def crash() -> None:
        raise ValueError("boom")

    background = Background()
    background.spawn(crash(), name="the crasher")
    with caplog.at_level(logging.ERROR):
        await eventually(lambda: "the crasher" in caplog.text)
    assert "boom" in caplog.text


async def test_race_returns_the_first_and_ends_the_others() -> None:
    """The loser has been cancelled, and its clean-up is over, when the winner's value is back."""
    ended = asyncio.Event()

    async def loser() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()
        return "never"

    async def winner() -> str:
        await asyncio.sleep(0)
        return "first"

    assert await race(loser(), winner()) == "first"
    assert ended.is_set()


async def test_race_raises_what_the_first_raises() -> None:
    """A contender that fails first wins as well."""

    async def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await race(forever(), fails())


async def test_a_cancelled_race_leaves_no_task() -> None:
    """Whoever cancels the race cancels all of it."""
    before = len(asyncio.all_tasks())
    task = asyncio.ensure_future(race(forever(), forever()))
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) > before
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_unbroken_work_is_undone_when_cancelled(cancellations: int) -> None:
    """What was made while the caller was being cancelled is handed to `undo`."""
    undone: list[int] = []
    may_end = asyncio.Event()

    async def make() -> int:
        await may_end.wait()
        return 7

    async def undo(value: int) -> None:
        undone.append(value)

    task = asyncio.ensure_future(unbroken(make(), undo=undo))
    for _ in range(cancellations):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == [7]


async def test_unbroken_work_that_fails_after_the_cancel_stays_cancelled() -> None:
    """There is nothing to undo then, and the cancellation isn't lost."""
    may_end = asyncio.Event()

    async def fail() -> int:
        await may_end.wait()
        raise OSError("no such thing")

    async def undo(_: int) -> None:
        raise AssertionError("nothing was made")

    task = asyncio.ensure_future(unbroken(fail(), undo=undo))
    await asyncio.sleep(0)
    task.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
