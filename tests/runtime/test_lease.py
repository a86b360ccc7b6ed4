from __future__ import annotations

import asyncio

import pytest

from llmsnap.core.messages import NO_WAIT, Event, Phases, RequestArrived, RequestFinished
from llmsnap.errors import LlmsnapError, StartFailed, UpstreamLost
from llmsnap.runtime.lease import Lease, Tickets
from llmsnap.runtime.upstream import Upstream

UPSTREAM = Upstream("a", 1, "127.0.0.1", 80, "", False, 42)


class Desk:
    """Plays the supervisor: keeps the events, and answers arrivals when told to."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tickets = Tickets(self.post)
        self.admits = False
        self.refusal: LlmsnapError | None = None

    def post(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RequestArrived):
            if self.refusal:
                self.tickets.abort(event.ticket, self.refusal)
            elif self.admits:
                self.tickets.open[event.ticket].grant(UPSTREAM, NO_WAIT)

    def draw(self) -> Lease:
        return self.tickets.draw("a", limited=True)


async def waiting(lease: Lease) -> asyncio.Task[Lease]:
    """A client that waits for `lease`."""
    task = asyncio.ensure_future(lease.__aenter__())
    await asyncio.sleep(0)
    return task


async def test_a_model_that_is_up_is_lent_without_yielding() -> None:
    """The hot path: entering runs to its end in one step."""
    desk = Desk()
    desk.admits = True
    entering = desk.draw().__aenter__()
    with pytest.raises(StopIteration) as done:
        entering.send(None)
    lease = done.value.value
    assert lease.upstream is UPSTREAM
    assert lease.phases is NO_WAIT
    await lease.__aexit__(None, None, None)
    assert desk.events == [RequestArrived(1, "a"), RequestFinished(1)]
    assert desk.tickets.open == {}


async def test_a_client_waits_until_it_is_let_in() -> None:
    """With the phases of its wait."""
    desk = Desk()
    lease = desk.draw()
    task = await waiting(lease)
    assert not task.done()
    lease.grant(UPSTREAM, Phases(start_s=2))
    assert (await task).phases.total_s == 2


async def test_a_refusal_is_raised_and_reported_once() -> None:
    """At once, or after a wait."""
    desk = Desk()
    desk.refusal = StartFailed("no")
    with pytest.raises(StartFailed, match="no"):
        await desk.draw().__aenter__()
    desk.refusal = None
    lease = desk.draw()
    task = await waiting(lease)
    desk.tickets.abort(lease.ticket, StartFailed("later"))
    with pytest.raises(StartFailed, match="later"):
        await task
    assert [e for e in desk.events if isinstance(e, RequestFinished)] == [
        RequestFinished(1),
        RequestFinished(2),
    ]
    assert desk.tickets.open == {}


async def test_a_wait_for_nothing_was_spent_all_the_same() -> None:
    """Who is refused is told how, who leaves asks for it."""
    desk = Desk()
    desk.tickets.waited = lambda ticket: Phases(queue_s=ticket)
    refused, left = desk.draw(), desk.draw()
    tasks = [await waiting(refused), await waiting(left)]
    desk.tickets.refuse(refused.ticket, StartFailed("no"), Phases(start_s=3))
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert isinstance(tasks[0].exception(), StartFailed)
    assert refused.phases == Phases(start_s=3)
    assert left.phases == Phases(queue_s=2)


@pytest.mark.parametrize("granted", [False, True], ids=["waiting", "just let in"])
async def test_a_client_that_leaves_is_reported_once(granted: bool) -> None:
    """Also in the step between admission and its waking up."""
    desk = Desk()
    lease = desk.draw()
    task = await waiting(lease)
    if granted:
        lease.grant(UPSTREAM, NO_WAIT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert desk.events[1:] == [RequestFinished(1)]
    assert desk.tickets.open == {}


async def test_a_holder_is_told_once_that_its_model_goes() -> None:
    """The callback is called with the error, which stays readable."""
    desk = Desk()
    desk.admits = True
    told: list[LlmsnapError] = []
    first, second = UpstreamLost("gone"), UpstreamLost("again")
    async with desk.draw() as lease:
        lease.on_abort = told.append
        assert lease.aborted is None
        desk.tickets.abort(lease.ticket, first)
        desk.tickets.abort(lease.ticket, second)
        assert lease.aborted is first
    assert told == [first]
    desk.tickets.abort(lease.ticket, second)
    assert desk.events[1:] == [RequestFinished(1)]


async def test_an_abort_before_the_client_woke_up_is_raised() -> None:
    """It was let in and its process died in the same step: it never gets to send anything."""
    desk = Desk()
    lease = desk.draw()
    task = await waiting(lease)
    lease.grant(UPSTREAM, NO_WAIT)
    lease.abort(UpstreamLost("gone"))
    with pytest.raises(UpstreamLost):
        await task
    assert desk.events[1:] == [RequestFinished(1)]


async def test_everything_can_be_ended_at_once() -> None:
    """Those who wait and those who hold."""
    desk = Desk()
    waiter = await waiting(desk.draw())
    desk.admits = True
    async with desk.draw() as lease:
        desk.tickets.abort_all(UpstreamLost("all"))
        assert lease.aborted is not None
    with pytest.raises(UpstreamLost):
        await waiter


async def test_news_for_those_who_left_are_dropped() -> None:
    """Their RequestFinished is on the way."""
    desk = Desk()
    desk.tickets.abort(99, UpstreamLost("x"))
    assert desk.events == []
