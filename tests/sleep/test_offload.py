"""Work in threads: what comes back, what is called off, and that the loop runs on meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable

import pytest

from llmsnap.sleep.offload import Deadline, Pace, for_each, in_thread, look, words
from tests.helpers.waiting import eventually


def ticking() -> Callable[[], float]:
    """A clock that moves a second each time it is read."""
    return itertools.count().__next__


async def test_the_loop_runs_on_while_work_blocks() -> None:
    """The work ends only because the loop does something after it began."""
    begun, let_go = threading.Event(), threading.Event()

    def work(_: Deadline) -> str:
        begun.set()
        assert let_go.wait(60)
        return "done"

    task = asyncio.ensure_future(in_thread(work, limit_s=5, name="x"))
    await eventually(begun.is_set)
    let_go.set()
    assert await task == "done"


async def test_what_work_raises_is_raised() -> None:
    """With its own type."""

    def work(_: Deadline) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_thread(work, limit_s=5, name="x")


async def test_work_that_looks_at_its_deadline_ends_there() -> None:
    """It gets TimeoutError, and so does the caller."""
    with pytest.raises(TimeoutError):
        await in_thread(lambda deadline: deadline.wait(lambda: False), limit_s=0.01, name="x")


async def test_work_that_hangs_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a thread that is stuck in the kernel, not even at the end of the program."""
    monkeypatch.setattr("llmsnap.sleep.offload._GRACE_S", 0.01)
    threads: list[threading.Thread] = []
    let_go = threading.Event()

    def work(_: Deadline) -> None:
        threads.append(threading.current_thread())
        let_go.wait(60)

    with pytest.raises(TimeoutError):
        await in_thread(work, limit_s=0.01, name="stuck")
    await eventually(lambda: bool(threads))
    assert threads[0].is_alive()
    assert threads[0].daemon
    assert threads[0].name == "stuck"
    let_go.set()
    await eventually(lambda: not threads[0].is_alive())


async def test_a_cancelled_caller_calls_the_work_off() -> None:
    """It ends at its next look, long before its limit."""
    begun, ended = threading.Event(), threading.Event()

    def work(deadline: Deadline) -> None:
        begun.set()
        try:
            deadline.wait(lambda: False)
        finally:
            ended.set()

    task = asyncio.ensure_future(in_thread(work, limit_s=60, name="x"))
    await eventually(begun.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(ended.is_set)


async def test_a_look_is_work_too() -> None:
    """It is done in another thread."""
    assert await look(threading.get_ident) != threading.get_ident()


def test_a_deadline_passes() -> None:
    """Looks before it are fine."""
    deadline = Deadline(2, clock=ticking())
    deadline.check()
    deadline.check()
    with pytest.raises(TimeoutError):
        deadline.check()


def test_every_item_is_worked_on_once() -> None:
    """However many threads there are."""
    seen: list[int] = []
    for_each(range(1000), seen.append, threads=4)
    assert sorted(seen) == list(range(1000))


def test_several_items_are_worked_on_at_once() -> None:
    """Each of these waits for the other."""
    both = threading.Barrier(2, timeout=60)
    for_each(range(2), lambda _: both.wait(), threads=2)


def test_the_first_error_ends_it() -> None:
    """It is raised, and what is left isn't begun."""
    seen: list[int] = []

    def work(item: int) -> None:
        seen.append(item)
        raise OSError(f"item {item}")

    with pytest.raises(OSError, match="item 0"):
        for_each(range(1000), work, threads=1)
    assert seen == [0]


def test_limits_grow_with_the_bytes() -> None:
    """A second for each 100 bytes, on top of what is always granted."""
    pace = Pace(base_s=2, lowest_rate=100)
    assert pace.limit_s(0) == 2
    assert pace.limit_s(1000) == 12


def test_a_timeout_has_words() -> None:
    """The exception itself has none."""
    assert "slow" in words(TimeoutError())
    assert words(OSError("no such thing")) == "no such thing"
