"""What is done when one of the four calls fails or has no answer, case by case."""

from __future__ import annotations

from collections import deque

import pytest

from llmsnap.errors import SleepFailed, SleepRefused, WakeFailed
from llmsnap.sleep.cuda_api import ProcessState, result_name
from llmsnap.sleep.cuda_client import CallLost, CudaClient
from llmsnap.sleep.cuda_steps import Limits, Steps
from llmsnap.sleep.cuda_wire import Operation, Reply

RUNNING, LOCKED, CHECKPOINTED, FAILED = list(ProcessState)[:4]
LOST = "lost"
GIB = 1024**3


class Script(CudaClient):
    """Answers calls in the order that a test wrote down, and remembers them with their deadlines.

    An answer is a result code, or `lost`; to a question for the state also the state.
    """

    def __init__(self, *answers: int | str) -> None:
        super().__init__(environ={})
        self.answers = deque(answers)
        self.asked: list[tuple[Operation, float]] = []

    async def state(self, pid: int, *, deadline_s: float) -> Reply:
        answer = self._next("state", deadline_s)
        return Reply(id=1, result=0, name="", seconds=0, state=int(answer))

    async def lock(self, pid: int, *, timeout_s: float, deadline_s: float) -> Reply:
        return self._reply("lock", deadline_s)

    async def checkpoint(self, pid: int, *, deadline_s: float) -> Reply:
        return self._reply("checkpoint", deadline_s)

    async def restore(self, pid: int, *, deadline_s: float) -> Reply:
        return self._reply("restore", deadline_s)

    async def unlock(self, pid: int, *, deadline_s: float) -> Reply:
        return self._reply("unlock", deadline_s)

    def _reply(self, op: Operation, deadline_s: float) -> Reply:
        code = int(self._next(op, deadline_s))
        return Reply(id=1, result=code, name=result_name(code), seconds=1.5)

    def _next(self, op: Operation, deadline_s: float) -> int | str:
        self.asked.append((op, deadline_s))
        answer = self.answers.popleft()
        if answer == LOST:
            raise CallLost(f"the driver's {op} call took over {deadline_s} s")
        return answer


def steps_for(*answers: int | str) -> tuple[Steps, Script]:
    script = Script(*answers)
    return Steps(script, Limits()), script


@pytest.mark.parametrize(
    "answers",
    [(0,), (401, LOCKED), (LOST, LOCKED)],
    ids=["at-once", "locked-before", "lost-but-done"],
)
async def test_a_lock_that_holds(answers: tuple[int | str, ...]) -> None:
    """It counts as soon as the process is locked, whoever did it."""
    steps, script = steps_for(*answers)
    await steps.lock(1)
    assert not script.answers


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((600,), "GPU work isn't done after 2 s"),
        ((304, RUNNING), "can't lock it .*OPERATING_SYSTEM"),
        ((LOST, RUNNING), "lock call took over"),
    ],
    ids=["busy", "refused", "lost"],
)
async def test_a_lock_that_left_all_as_it_was(answers: tuple[int | str, ...], words: str) -> None:
    """The process may be kept."""
    steps, script = steps_for(*answers)
    with pytest.raises(SleepRefused, match=words) as caught:
        await steps.lock(1)
    assert caught.value.intact
    assert not script.answers


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((999, FAILED), "UNKNOWN.*now it is failed"),
        ((LOST, LOST), "doesn't tell"),
        ((401, 7), "in state 7"),
    ],
    ids=["broken", "no-word", "newer-state"],
)
async def test_a_lock_of_which_nothing_is_known(answers: tuple[int | str, ...], words: str) -> None:
    """The process must be ended."""
    steps, _ = steps_for(*answers)
    with pytest.raises(SleepFailed, match=words) as caught:
        await steps.lock(1)
    assert not caught.value.intact


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [
        ((0,), 1.5),
        ((LOST, CHECKPOINTED), None),
        ((LOST, LOCKED, 0), 1.5),
        ((LOST, LOCKED, LOST, CHECKPOINTED), None),
    ],
    ids=["at-once", "lost-but-done", "second-try", "second-try-lost-but-done"],
)
async def test_a_checkpoint_that_is_made(
    answers: tuple[int | str, ...], seconds: float | None
) -> None:
    """By a second try too, when the first was lost before it began."""
    steps, script = steps_for(*answers)
    assert await steps.checkpoint(1, GIB) == seconds
    assert not script.answers


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((801,), "can't checkpoint it .*NOT_SUPPORTED"),
        ((LOST, FAILED), "took over .* now it is failed"),
        ((LOST, LOST), "doesn't tell"),
        ((LOST, LOCKED, LOST, LOCKED), "took over"),
    ],
    ids=["refused", "broken", "no-word", "lost-twice"],
)
async def test_a_checkpoint_that_is_not_made(answers: tuple[int | str, ...], words: str) -> None:
    """Whatever the state, the process must be ended: the driver promises nothing after a fault."""
    steps, script = steps_for(*answers)
    with pytest.raises(SleepFailed, match=words) as caught:
        await steps.checkpoint(1, GIB)
    assert not caught.value.intact
    assert not script.answers


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [((0,), 1.5), ((LOST, LOCKED), None), ((LOST, RUNNING), None)],
    ids=["at-once", "lost-but-done", "lost-and-unlocked"],
)
async def test_a_restore_that_is_made(
    answers: tuple[int | str, ...], seconds: float | None
) -> None:
    """When its answer is lost, the state tells."""
    steps, script = steps_for(*answers)
    assert await steps.restore(1, GIB) == seconds
    assert not script.answers


@pytest.mark.parametrize(
    "answers",
    [(2,), (304,), (1,), (401,), (LOST, CHECKPOINTED), (LOST, FAILED), (LOST, LOST)],
    ids=["out-of-memory", "poisoned", "invalid", "state", "lost", "broken", "no-word"],
)
async def test_a_restore_that_is_not_made(answers: tuple[int | str, ...]) -> None:
    """It is never tried again: the process must be ended."""
    steps, script = steps_for(*answers)
    with pytest.raises(WakeFailed):
        await steps.restore(1, GIB)
    assert not script.answers


@pytest.mark.parametrize(
    "answers",
    [
        (0,),
        (401, RUNNING),
        (LOST, RUNNING),
        (304, LOCKED, LOST, LOCKED, 0),
    ],
    ids=["at-once", "unlocked-before", "lost-but-done", "third-try"],
)
async def test_an_unlock_that_is_made(answers: tuple[int | str, ...]) -> None:
    """In up to three tries."""
    steps, script = steps_for(*answers)
    await steps.unlock(1)
    assert not script.answers


async def test_an_unlock_that_is_not_made() -> None:
    """After three tries the process must be ended."""
    steps, script = steps_for(304, LOCKED, 304, LOCKED, LOST, LOST)
    with pytest.raises(WakeFailed, match="unlock call took over"):
        await steps.unlock(1)
    assert not script.answers


async def test_deadlines_grow_with_what_is_moved() -> None:
    """By the lowest rate to reckon with; the lock's is its own wait and some."""
    steps, script = steps_for(0, LOST, CHECKPOINTED, LOST, LOCKED, 0)
    await steps.lock(1)
    await steps.checkpoint(1, 5_000_000_000)
    await steps.restore(1, 5_000_000_000)
    await steps.unlock(1)
    assert script.asked == [
        ("lock", 7),
        ("checkpoint", 20),
        ("state", 20),
        ("restore", 15),
        ("state", 15),
        ("unlock", 5),
    ]


def test_margins_are_the_larger_ones() -> None:
    """A fixed one for small models, a share for large ones."""
    limits = Limits()
    assert limits.on_gpu(GIB) == GIB + GIB // 2
    assert limits.on_gpu(100 * GIB) == 103 * GIB
    assert limits.in_ram(GIB) == 2 * GIB
    assert limits.in_ram(100 * GIB) == 105 * GIB
