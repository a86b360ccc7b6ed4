"""How models come and go, as records."""

from __future__ import annotations

import logging

import pytest

from llmsnap.core.cause import ASKED, Cause, Why
from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import (
    Admit,
    ModelChanged,
    PageOut,
    Phases,
    Reject,
    RequestArrived,
    Sleep,
    Start,
    Stop,
    Tick,
    Wake,
)
from llmsnap.errors import StartFailed, UpstreamLost
from llmsnap.runtime.lease import Lease, Tickets
from llmsnap.runtime.moves import Moves
from llmsnap.runtime.rest import RestView
from llmsnap.runtime.upstream import Upstream
from llmsnap.sleep.driver import Moved
from llmsnap.telemetry.record import Departure, ExitRecord, MoveRecord
from llmsnap.telemetry.recorder import Recorder
from tests.runtime.rig import OneAtATime, Rig, plan

UPSTREAM = Upstream("a", 1, "127.0.0.1", 1, "", tls=False, pid=None)
REQUESTED = Cause(Why.REQUESTED)


class Stage:
    """Moves, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rest = RestView(driver="fake")
        self.moves: list[MoveRecord] = []
        self.exits: list[ExitRecord] = []
        recorder = Recorder()
        recorder.clock = lambda: self.now
        self.recorder = recorder
        recorder.listen(lambda batch: self.moves.extend(batch.moves))
        recorder.listen(lambda batch: self.exits.extend(batch.exits))
        self.tickets = Tickets(lambda event: None)
        self.under_test = Moves(recorder, self.tickets.open, lambda model: self.rest)

    def holder(self, model: str, phases: Phases | None = None) -> Lease:
        """A request that waits for `model`, or with `phases` was let in."""
        lease = self.tickets.draw(model, limited=True)
        self.tickets.open[lease.ticket] = lease
        if phases is not None:
            lease.grant(UPSTREAM, phases)
        return lease

    def reports(
        self,
        at: float,
        trigger: Trigger,
        *ends: Admit | Reject,
        generation: int = 1,
        oom: bool = False,
    ) -> None:
        """The process of `a` is reported about."""
        error = StartFailed("no") if trigger is Trigger.EXITED else None
        self.follow(at, ModelChanged("a", generation, trigger, error, oom), *ends)

    def follow(self, at: float, event: object, *actions: object) -> None:
        """Something happens."""
        self.now = at
        self.under_test.follow(event, actions)  # type: ignore[arg-type]
        self.recorder.flush()


@pytest.fixture
async def stage() -> Stage:
    """Nothing has happened."""
    return Stage()


async def test_a_swap_tells_what_it_was_made_of(stage: Stage) -> None:
    """Who made room, what the longest waiter waited for; and those who waited know it."""
    first, second = stage.holder("a"), stage.holder("a")
    stage.follow(1, RequestArrived(1, "a"), Sleep("b", 1, Cause(Why.ROOM, "a")))
    stage.follow(2, ModelChanged("b", 1, Trigger.SLEPT), Start("a", 1, REQUESTED))
    waits = Phases(queue_s=0.5, evict_s=1, start_s=3), Phases(start_s=2)
    for lease, phases in zip((first, second), waits, strict=True):
        lease.grant(UPSTREAM, phases)
    stage.reports(5, Trigger.READY, Admit(first.ticket), Admit(second.ticket))

    sleep, start = stage.moves
    assert (sleep.kind, sleep.result, sleep.duration_s) == ("sleep", "ok", 1)
    assert str(sleep.cause) == "evicted by a"
    assert (start.kind, start.phases, start.swap_s) == ("start", waits[0], 4)
    assert start.departures == (Departure("b", "sleep"),)
    assert first.swap is second.swap is start


async def test_a_swap_that_nobody_waits_for_any_more(stage: Stage) -> None:
    """Takes as long as it takes."""
    stage.follow(1, Tick(), Wake("a", 1, REQUESTED))
    stage.reports(3, Trigger.WOKEN)

    (wake,) = stage.moves
    assert (wake.phases, wake.driver) == (Phases(wake_s=2), "fake")


async def test_what_was_moved_is_told(stage: Stage) -> None:
    """By the driver."""
    down, up = ({"ram": 5}, {"gpu0": 7})
    stage.rest = RestView(
        driver="fake", slept=Moved(seconds=1, bytes=down), woken=Moved(seconds=1, bytes=up)
    )
    stage.follow(1, Tick(), Sleep("a", 1, ASKED))
    stage.reports(2, Trigger.SLEPT)
    stage.follow(3, Tick(), Wake("a", 1, ASKED))
    stage.reports(4, Trigger.WOKEN)

    assert [move.moved_bytes for move in stage.moves] == [down, up]


async def test_a_refused_sleep(stage: Stage) -> None:
    """The model is as awake as before."""
    stage.follow(1, Tick(), Sleep("a", 1, ASKED))
    stage.reports(2, Trigger.WOKEN)

    assert [(move.kind, move.result) for move in stage.moves] == [("sleep", "refused")]


async def test_the_way_from_ram_to_swap(stage: Stage) -> None:
    """It is a way of its own, and a refused one is no failure."""
    moved = {"ram": -7, "swap": 8}
    stage.rest = RestView(driver="cuda", paged=Moved(seconds=1, bytes=moved))
    for at, news in ((10, Trigger.SLEPT), (20, Trigger.PAGED)):
        stage.follow(at, Tick(), PageOut("a", 1, Cause(Why.TIER, "b")))
        stage.reports(at + 1, news)
    refused, paged = stage.moves
    assert (refused.kind, refused.result, refused.moved_bytes) == ("page_out", "refused", {})
    assert (paged.kind, paged.result, paged.moved_bytes) == ("page_out", "ok", moved)
    assert str(paged.cause) == "its room is needed for b"


async def test_a_refused_wake(stage: Stage) -> None:
    """Nobody was let in by it."""
    stage.follow(10, Tick(), Wake("a", 1, REQUESTED))
    stage.reports(11, Trigger.SLEPT)
    assert [(move.kind, move.result) for move in stage.moves] == [("wake", "refused")]


async def test_a_start_that_is_cut_short(stage: Stage) -> None:
    """By an order to stop; a late word of readiness changes nothing."""
    stage.follow(1, Tick(), Start("a", 1, ASKED))
    stage.follow(2, Tick(), Stop("a", 1, ASKED))
    stage.reports(3, Trigger.READY)
    stage.reports(4, Trigger.EXITED)

    assert [(m.kind, m.result, m.ended_at) for m in stage.moves] == [
        ("start", "cancelled", 2),
        ("stop", "ok", 4),
    ]
    assert [end.reason for end in stage.exits] == ["ordered"]


@pytest.mark.parametrize(("oom", "reason"), [(False, "start_failed"), (True, "out_of_memory")])
async def test_a_failed_start(stage: Stage, oom: bool, reason: str) -> None:
    """Why is told twice: of the swap, and of the process."""
    stage.follow(1, Tick(), Start("a", 1, ASKED))
    stage.reports(3, Trigger.EXITED, oom=oom)

    assert [(move.result, move.error) for move in stage.moves] == [("failed", "no")]
    assert [end.reason for end in stage.exits] == [reason]


async def test_who_waited_for_a_failed_start_knows_it(stage: Stage) -> None:
    """What it made room for, and how long that took."""
    lease = stage.holder("a")
    stage.follow(1, RequestArrived(1, "a"), Stop("b", 1, Cause(Why.ROOM, "a")))
    stage.follow(2, ModelChanged("b", 1, Trigger.EXITED), Start("a", 1, REQUESTED))
    spent = Phases(evict_s=1, start_s=3)
    lease.refuse(StartFailed("no"), spent)
    stage.reports(5, Trigger.EXITED, Reject(lease.ticket, StartFailed("no"), spent))

    start = stage.moves[-1]
    assert lease.swap is start
    assert (start.result, start.phases, start.swap_s) == ("failed", spent, 4)
    assert start.departures == (Departure("b", "stop"),)


async def test_a_crash(stage: Stage) -> None:
    """It is the end of a process, and no move."""
    stage.follow(3, ModelChanged("a", 1, Trigger.EXITED, UpstreamLost("gone")))

    assert not stage.moves
    assert [(end.reason, end.error) for end in stage.exits] == [("crashed", "gone")]


async def test_late_news_of_an_older_process(stage: Stage) -> None:
    """Isn't taken for news of the present one."""
    stage.follow(1, Tick(), Start("a", 2, ASKED))
    stage.reports(2, Trigger.EXITED, generation=1)

    assert not stage.moves
    assert not stage.exits


async def test_answers_that_are_paused_know_it(stage: Stage) -> None:
    """Those that were let in; not those that wait."""
    served, waiting = stage.holder("a", Phases()), stage.holder("a")
    stage.follow(1, Tick(), Sleep("a", 1, Cause(Why.ROOM, "b")))
    stage.reports(2, Trigger.SLEPT)
    stage.follow(5, Tick(), Wake("a", 1, Cause(Why.RESUMED)))
    stage.reports(6, Trigger.WOKEN)

    assert served.pauses is not None
    assert (served.pauses.count, served.pauses.total_s(99)) == (1, 5)
    assert waiting.pauses is None
    assert [move.paused for move in stage.moves] == [1, 0]


async def test_who_is_back_has_made_room_for_nobody(stage: Stage) -> None:
    """Should the one that it was for not have come in the meantime."""
    stage.follow(1, Tick(), Stop("b", 1, Cause(Why.ROOM, "a")))
    stage.follow(2, ModelChanged("b", 1, Trigger.EXITED), Start("b", 2, REQUESTED))
    stage.follow(3, Tick(), Start("a", 1, REQUESTED))
    stage.reports(4, Trigger.READY)

    assert stage.moves[-1].departures == ()


async def test_each_swap_is_one_line_in_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """It names who made room, and why; those who go for another reason have a line of their own."""
    caplog.set_level(logging.INFO)
    lease = stage.holder("a")
    stage.follow(1, RequestArrived(1, "a"), Sleep("b", 1, Cause(Why.ROOM, "a")))
    stage.follow(2, ModelChanged("b", 1, Trigger.SLEPT), Start("a", 1, REQUESTED))
    lease.grant(UPSTREAM, Phases(evict_s=1, start_s=3))
    stage.reports(5, Trigger.READY, Admit(lease.ticket))
    stage.follow(305, Tick(), Stop("a", 1, Cause(Why.TTL, idle_s=300)))
    stage.reports(307, Trigger.EXITED)

    assert caplog.messages == [
        "model a: started after 4.0 s: 1.0 s to put b to sleep, 3.0 s to start (requested)",
        "model a: stopped in 2.0 s (ttl 300 s)",
    ]


async def test_who_made_room_for_nobody_has_a_line(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """No other line will tell of it; what is refused is told where it is."""
    caplog.set_level(logging.INFO)
    stage.follow(1, RequestArrived(1, "b"), Sleep("a", 1, Cause(Why.ROOM, "b")))
    stage.reports(2, Trigger.SLEPT)
    stage.follow(3, Tick(), Wake("a", 1, REQUESTED))
    stage.reports(4, Trigger.SLEPT)

    assert caplog.messages == ["model a: put to sleep in 1.0 s by fake (evicted by b)"]


async def test_a_real_swap(rig: Rig) -> None:
    """Through supervisor, scheduler and processes: one makes room, the other comes."""
    supervisor = rig.supervise(plan("a"), plan("b"), constraints=OneAtATime())
    async with supervisor.lease("a"):
        pass
    async with supervisor.lease("b") as lease:
        assert lease.swap is not None
        assert lease.swap.departures == (Departure("a", "stop"),)
        assert lease.swap.phases == lease.phases
        assert lease.phases.evict_s > 0
    await supervisor.unload("b")
    assert supervisor.view("b").state is State.STOPPED
