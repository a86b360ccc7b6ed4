"""Events in, actions carried out: the scheduler's hands."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final, assert_never

from llmsnap.core.cause import Why
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import (
    Abort,
    Action,
    Admit,
    Adopted,
    Event,
    ModelChanged,
    ModelGoing,
    ModelView,
    PageOut,
    Phases,
    Reject,
    Sleep,
    Start,
    Stop,
    Tick,
    Wake,
)
from llmsnap.core.slot import DOWN
from llmsnap.errors import LlmsnapError, ServiceUnavailable
from llmsnap.runtime.alarm import Alarm
from llmsnap.runtime.lacks import Looks
from llmsnap.runtime.lease import Tickets
from llmsnap.runtime.moves import Moves
from llmsnap.runtime.prefetch import ReadAhead
from llmsnap.runtime.rest import RestView
from llmsnap.runtime.roles import Decides, Runs
from llmsnap.runtime.story import Story, Transition
from llmsnap.telemetry.recorder import Recorder

logger = logging.getLogger(__name__)

Watcher = Callable[[ModelView, State], None]

_NEWS: Final = (ModelChanged, ModelGoing)
_SHOWN_HISTORY: Final = 20


class Pump:
    """Hands events to the scheduler, and has runners and tickets do what it orders.

    All of it happens between two awaits, so that there are no locks. Build it within the loop.
    """

    def __init__(
        self, scheduler: Decides, ahead: ReadAhead, recorder: Recorder, looks: Looks | None
    ) -> None:
        self.fatal: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Set when a bug made it give up: all is being ended."""
        self.runners: Mapping[str, Runs] = {}
        before = looks.before if looks else lambda _: None
        self.tickets = Tickets(self.post, before, scheduler.waited)
        self.watchers: list[Watcher] = []
        """Called soon after each change of a state, with the view after it and the state before."""
        self._scheduler = scheduler
        self._ahead = ahead
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._posting = False
        self._moves = Moves(recorder, self.tickets.open, self.rest)
        self._story = Story(scheduler.views(), self._loop.time)
        self._news = asyncio.Event()
        self._gone: dict[str, list[asyncio.Future[None]]] = {}
        self._alarm = Alarm(
            lambda: inf if self.fatal.done() else scheduler.next_deadline, lambda: self.post(Tick())
        )

    def know(self, runners: Mapping[str, Runs]) -> None:
        """Take in that these are the runners from now on."""
        self.runners = runners
        self._story.know(runners)

    def arm(self) -> None:
        """Begin to keep the scheduler's time."""
        self._alarm.arm()

    def close(self) -> None:
        """Keep its time no more."""
        self._alarm.cancel()

    def rest(self, model: str) -> RestView:
        """Return how `model` sleeps; nothing is known of one that never was up."""
        runner = self.runners.get(model)
        return runner.rest if runner else RestView()

    async def next_event(self) -> None:
        """Return soon after anything that the scheduler is told; raise once all is given up."""
        if not self.fatal.done():
            await self.next_news()
        if self.fatal.done():
            raise _gave_up()

    async def next_news(self) -> None:
        """Return soon after anything that is posted, also when all is given up."""
        self._news.clear()
        await self._news.wait()

    async def gone(self, model: str) -> None:
        """Return once `model` has no process; raise when all is given up before that."""
        if self._scheduler.view(model).state not in DOWN and not self.fatal.done():
            gone: asyncio.Future[None] = self._loop.create_future()
            self._gone.setdefault(model, []).append(gone)
            await gone

    def post(self, event: Event) -> None:
        """Hand one event to the scheduler and begin what it asks for.

        What is posted while that happens comes after it.
        """
        if self._posting:
            self._events.append(event)
            return
        self._posting = True
        try:
            self._take(event)
            while self._events:
                self._take(self._events.popleft())
        finally:
            self._posting = False
        self._alarm.arm()

    def _take(self, event: Event) -> None:
        pid = None
        if is_news := isinstance(event, _NEWS):
            pid = self._pid(event.model)
        self._news.set()
        if self.fatal.done():
            self.tickets.abort_all(_gave_up())
            return
        try:
            actions = self._scheduler.handle(event)
            moves = is_news or isinstance(event, Adopted)
            for action in actions:
                self._begin(action)
                moves = moves or not isinstance(action, Admit)
            if moves and (steps := self._story.follow(event, actions, pid)):
                self._moves.follow(event, actions)
                self._tell(steps)
            self._ahead.follow(event, actions)
        except Exception as error:  # the root of all decisions: none can be trusted any more
            self._give_up(error, event)

    def _begin(self, action: Action) -> None:
        match action:
            case Admit(ticket, phases):
                self._admit(ticket, phases)
            case Reject(ticket, error, phases):
                self.tickets.refuse(ticket, error, phases)
            case Abort(ticket, error):
                self.tickets.abort(ticket, error)
            case Start(model, generation):
                self.runners[model].start(generation)
            case Sleep(model, cause=cause):
                paused = self._scheduler.view(model).in_flight
                # Where its room is wanted it may be better stopped; else nothing speaks for that.
                self.runners[model].sleep(anyway=bool(paused) or cause.why is not Why.ROOM)
            case PageOut(model):
                self.runners[model].page_out()
            case Wake(model):
                self.runners[model].wake()
            case Stop(model):
                self.runners[model].stop()
            case _:
                assert_never(action)

    def _admit(self, ticket: int, phases: Phases) -> None:
        lease = self.tickets.open.get(ticket)
        if lease is None:  # it left just now; that it has is on the way
            return
        upstream = self.runners[lease.model].upstream
        assert upstream is not None, f"{lease.model} isn't ready"
        lease.grant(upstream, phases)

    def _tell(self, steps: Sequence[Transition]) -> None:
        for step in steps:
            if step.after in DOWN:
                for gone in self._gone.pop(step.model, ()):
                    if not gone.done():
                        gone.set_result(None)
            view = replace(self._scheduler.view(step.model), state=step.after)
            for watcher in self.watchers:
                self._loop.call_soon(watcher, view, step.before)

    def _give_up(self, error: Exception, event: Event) -> None:
        """End everything in order, because of a bug; say what led to it."""
        for when, past, actions in list(self._scheduler.history)[-_SHOWN_HISTORY:]:
            logger.critical("history: %.3f %s -> %s", when, past, actions)
        logger.critical("internal error at %s; everything is ended", event, exc_info=error)
        self.fatal.set_result(error)
        self.tickets.abort_all(_gave_up())
        self._ahead.close()
        for runner in self.runners.values():
            runner.stop()
        for gone in (gone for waiting in self._gone.values() for gone in waiting):
            if not gone.done():
                gone.set_exception(_gave_up())

    def _pid(self, model: str) -> int | None:
        runner = self.runners.get(model)
        return runner.pid if runner else None


def _gave_up() -> LlmsnapError:
    return ServiceUnavailable("llmsnap met an internal error and is ending; its log says which")
