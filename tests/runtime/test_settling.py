"""Memory counts as free when it is shown free, and not when a process has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from llmsnap.config.schema import MemoryConfig
from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import ForeignChanged, ModelChanged, ModelGoing
from llmsnap.errors import UpstreamLost
from llmsnap.memory.machine import Look
from llmsnap.runtime.settling import Settling
from llmsnap.runtime.tasks import Background
from tests.helpers.waiting import eventually
from tests.memory.looks import GIB, gib, look, reading, tree
from tests.runtime.watching import Stage

EXITED = ModelChanged("a", 1, Trigger.EXITED)
SLEPT = ModelChanged("a", 1, Trigger.SLEPT)


class Rig(Stage):
    """A stage with what stands between its models' reports and the scheduler."""

    def __init__(self, *, timeout_s: float = 3600.0, **capacity: float) -> None:
        super().__init__({device: gib(size) for device, size in capacity.items()}, MemoryConfig())
        self.background = Background()
        self.skipped_s = 0.0
        loop = asyncio.get_running_loop()
        self.settling = Settling(
            self.watch,
            self,
            self.background,
            self.post,
            timeout_s=timeout_s,
            clock=lambda: loop.time() + self.skipped_s,
        )

    async def sees(self, shown: Look) -> None:
        """Have the machine looked at twice as it is now."""
        self.shown, before = shown, self.looks
        await eventually(lambda: self.looks >= before + 2)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """One card."""
    rig = Rig(gpu0=23.5)
    yield rig
    await rig.background.aclose()


def card(used: float, listed: dict[int, float] | None, *, pids: tuple[int, ...] = (10,)) -> Look:
    """A card of which so many GiB are used, and the processes of `a`."""
    return look(reading("gpu0", used, processes=listed), a=tree(*pids, anonymous=0.25))


async def test_u18_the_exit_is_told_when_the_memory_is_shown_free(rig: Rig) -> None:
    """The process is gone and isn't listed any more, but its 8 GiB are still used."""
    await rig.shows(card(9, {10: 8}), a=State.READY)
    rig.becomes("a", State.STOPPING)
    rig.settling.report(EXITED)
    await rig.sees(card(9, {}, pids=()))
    assert EXITED not in rig.posted
    rig.shown = card(1, {}, pids=())
    await eventually(lambda: EXITED in rig.posted)
    assert not any(isinstance(e, ForeignChanged) and e.used_bytes > GIB for e in rig.posted)


async def test_a_process_that_is_still_listed_has_not_left(rig: Rig) -> None:
    """Some drivers list it for a while after its end."""
    await rig.shows(card(9, {10: 8}), a=State.READY)
    rig.becomes("a", State.STOPPING)
    rig.settling.report(EXITED)
    await rig.sees(card(9, {10: 8}, pids=()))
    assert EXITED not in rig.posted
    rig.shown = card(1, {}, pids=())
    await eventually(lambda: EXITED in rig.posted)


async def test_what_others_of_ours_take_meanwhile_is_not_missed(rig: Rig) -> None:
    """b loads into the room beside while a leaves: the list says whose it is."""
    both = look(reading("gpu0", 12, processes={10: 8, 20: 3}), a=tree(10), b=tree(20))
    await rig.shows(both, a=State.READY, b=State.STARTING)
    rig.becomes("a", State.STOPPING)
    rig.shown = look(reading("gpu0", 11, processes={20: 10}), a=tree(), b=tree(20))
    rig.settling.report(EXITED)
    await eventually(lambda: EXITED in rig.posted)


async def test_u19_after_the_settle_time_the_rest_counts_as_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged, and told before the exit, so that nothing loads into it."""
    rig = Rig(timeout_s=0.2, gpu0=23.5)
    await rig.shows(card(9, {10: 8}), a=State.READY)
    rig.becomes("a", State.STOPPING)
    rig.news()
    rig.shown = card(9, {}, pids=())
    rig.settling.report(EXITED)
    await eventually(lambda: EXITED in rig.posted)
    assert rig.posted == [ForeignChanged("gpu0", 9 * GIB), EXITED]
    assert "8 GiB of gpu0 didn't come back within 0.2 s (memory.settleTimeout)" in caplog.text


async def test_without_bytes_by_process_what_is_used_must_fall(rig: Rig) -> None:
    """By most of what the model took when it came."""
    await rig.shows(card(1, None))
    await rig.shows(card(1, None), a=State.STARTING)
    await rig.shows(card(9, None), a=State.READY)
    rig.becomes("a", State.SLEEPING)
    rig.settling.report(SLEPT)
    await rig.sees(card(7, None))
    assert SLEPT not in rig.posted
    rig.shown = card(1.5, None)
    await eventually(lambda: SLEPT in rig.posted)


async def test_who_comes_meanwhile_hides_what_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """b takes while a gives: only when b is up it can be told, and no time runs out till then."""
    rig = Rig(timeout_s=30, gpu0=23.5)
    await rig.shows(card(1, None))
    await rig.shows(card(1, None), a=State.STARTING)
    await rig.shows(card(9, None), a=State.READY)
    rig.becomes("a", State.STOPPING)
    rig.becomes("b", State.STARTING)
    rig.settling.report(EXITED)
    for _ in range(3):
        await rig.sees(look(reading("gpu0", 7, processes=None), a=tree(), b=tree(20)))
        rig.skipped_s += 60
    assert EXITED not in rig.posted
    rig.learned.seen["b"] = {"gpu0": 6 * GIB}
    rig.becomes("b", State.READY)
    await eventually(lambda: EXITED in rig.posted)
    assert not any(isinstance(e, ForeignChanged) and e.used_bytes > GIB for e in rig.posted)
    assert "didn't come back" not in caplog.text
    await rig.background.aclose()


async def test_what_came_while_nothing_could_be_read_is_awaited_too(rig: Rig) -> None:
    """NVML is back just when the model leaves: what it is thought to need must come back."""
    rig.learned.seen["a"] = {"gpu0": 8 * GIB}
    await rig.shows(card(1, {}))
    await rig.shows(look(a=tree(10, anonymous=0.25)), a=State.STARTING)
    await rig.shows(look(a=tree(10, anonymous=0.25)), a=State.READY)
    rig.becomes("a", State.STOPPING)
    rig.settling.report(EXITED)
    await rig.sees(card(9, {}, pids=()))
    assert EXITED not in rig.posted
    rig.shown = card(1, {}, pids=())
    await eventually(lambda: EXITED in rig.posted)


async def test_in_ram_the_end_of_the_process_is_enough() -> None:
    """What it had of RAM ends with it: nothing is waited for."""
    rig = Rig(host=20)
    await rig.shows(look(reading("host", 9), a=tree(10, anonymous=4)), a=State.READY)
    rig.settling.report(EXITED)
    assert EXITED in rig.posted


async def test_in_ram_a_sleep_is_judged_by_the_process_alone() -> None:
    """Paging out leaves copies behind, so what the machine shows as used says nothing."""
    rig = Rig(host=20)
    await rig.shows(look(reading("host", 9), a=tree(10, anonymous=4)), a=State.READY)
    rig.becomes("a", State.SLEEPING)
    rig.settling.report(SLEPT)
    await rig.sees(look(reading("host", 9), a=tree(10, anonymous=2, swap=2)))
    assert SLEPT not in rig.posted
    rig.shown = look(reading("host", 9), a=tree(10, anonymous=0.3, swap=3.7))
    await eventually(lambda: SLEPT in rig.posted)
    await rig.background.aclose()


async def test_pages_of_files_may_stay_in_ram() -> None:
    """They are another process' too, or not ours to drop; the kernel does when room is wanted."""
    rig = Rig(host=20)
    await rig.shows(look(reading("host", 9), a=tree(10, anonymous=1, file=3)), a=State.READY)
    rig.becomes("a", State.SLEEPING)
    rig.shown = look(reading("host", 8), a=tree(10, file=3, swap=1))
    rig.settling.report(SLEPT)
    await eventually(lambda: SLEPT in rig.posted)
    await rig.background.aclose()


async def test_what_can_not_be_seen_is_not_waited_for(rig: Rig) -> None:
    """While NVML is silent, a process that ended has given its memory back."""
    await rig.shows(card(9, {10: 8}), a=State.READY)
    rig.shown = look(reading("gpu0", 9, processes={10: 8}), stale="gpu0")
    rig.settling.report(EXITED)
    await eventually(lambda: EXITED in rig.posted)


async def test_other_news_passes_at_once(rig: Rig) -> None:
    """As does all that is about a model which holds nothing."""
    going = ModelGoing("a", 1, UpstreamLost("it died"))
    for news in (ModelChanged("a", 1, Trigger.READY), going, EXITED):
        rig.settling.report(news)
        assert rig.news() == [news]


async def test_nothing_is_held_back_at_the_end(rig: Rig) -> None:
    """Nothing is going to start in that memory."""
    await rig.shows(card(9, {10: 8}), a=State.READY)
    rig.closing = True
    rig.settling.report(EXITED)
    assert EXITED in rig.posted


async def test_an_end_while_one_waits_is_told_at_once(rig: Rig) -> None:
    """The shutdown doesn't take as long as the driver."""
    await rig.shows(card(9, {10: 8}), a=State.READY)
    rig.becomes("a", State.STOPPING)
    rig.settling.report(EXITED)
    await rig.sees(card(9, {}, pids=()))
    rig.closing = True
    await eventually(lambda: EXITED in rig.posted)


async def test_an_exit_out_of_sleep_is_told_at_once(rig: Rig) -> None:
    """It had left the card before."""
    await rig.shows(card(9, {10: 8}), a=State.READY)
    rig.becomes("a", State.SLEEPING)
    rig.shown = card(1, {})
    rig.settling.report(SLEPT)
    await eventually(lambda: SLEPT in rig.posted)
    rig.becomes("a", State.ASLEEP)
    rig.settling.report(EXITED)
    assert EXITED in rig.posted


async def test_a_wake_that_was_refused_is_told_at_once() -> None:
    """The model is asleep as before, and took nothing."""
    rig = Rig(host=20, gpu0=23.5)
    shown = look(reading("gpu0", 1, processes={}), reading("host", 9), a=tree(10, anonymous=8))
    await rig.shows(shown, a=State.WAKING)
    rig.settling.report(SLEPT)
    assert SLEPT in rig.posted
