"""The scheduler: events in, actions out. Its rules, R1-R18, are in docs/scheduling.md.

    admission       R1-R3    who gets a place in the queue, and who leaves it
    news            R4       what happened to processes and memory
    dispatch        R5, R6   one walk over the queue, at the end of every event
    victims         R7, R8, R10   who makes room
    wayout          R9       sleep or stop
    timers          R11, R12 pinned models, idle timers
    administration  R15      unload, sleep, shutdown, handover
    reconfigure     R16      other settings while models run
    release         R17      all memory given back for a while
    adoption        R18      what an earlier proxy left

`board` holds the state they share, `ledger` the memory books. R13 is `Board.due`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from math import isfinite
from typing import Final, assert_never

from llmsnap.core import (
    administration,
    admission,
    adoption,
    invariants,
    news,
    reconfigure,
    release,
    timers,
)
from llmsnap.core.board import Board, waited
from llmsnap.core.constraints import Constraints
from llmsnap.core.dispatch import Walk, admit_only_one
from llmsnap.core.ledger import Ledger
from llmsnap.core.messages import (
    NO_WAIT,
    AbilityChanged,
    Abort,
    Action,
    Admit,
    Adopted,
    Event,
    ForeignChanged,
    KeepRequested,
    LackChanged,
    ModelChanged,
    ModelDeaf,
    ModelGoing,
    ModelSpec,
    ModelView,
    NeedChanged,
    NeedEstimated,
    Phases,
    Reconfigured,
    Reject,
    ReleaseRequested,
    RequestArrived,
    RequestFinished,
    ResumeRequested,
    ShutdownRequested,
    SleepRequested,
    Tick,
    UnloadRequested,
)
from llmsnap.core.pace import Pace
from llmsnap.core.schedule import Schedule
from llmsnap.core.slot import DOWN, Slot

_WORDS: Final = (Admit, Reject, Abort)
"""Actions that move no model."""


class Scheduler:
    """Decides which models are up and who may use them; does nothing itself.

    `capacity` is bytes a device, `tiers` bytes a place where sleeping models go; `clock` is
    monotonic, in seconds.
    """

    def __init__(
        self,
        specs: Iterable[ModelSpec],
        *,
        capacity: Mapping[str, int],
        tiers: Mapping[str, int],
        schedule: Schedule,
        constraints: Constraints,
        clock: Callable[[], float],
    ) -> None:
        slots = [
            Slot(spec, spec.need, spec.estimate, Pace(spec.round_trip_s))
            for spec in sorted(specs, key=lambda spec: spec.name)
        ]
        self._board = Board(slots, Ledger(slots, capacity, tiers), schedule, constraints)
        self._clock = clock
        if self._board.pinned or self._board.default is not None:
            self._board.alarm = clock()
        self.history: deque[tuple[float, Event, tuple[Action, ...]]] = deque(maxlen=1000)
        """The last events: when, what, and what was ordered. For post-mortems."""

    def handle(self, event: Event) -> list[Action]:
        """Take in one event; return what must now be done, in order."""
        now = self._clock()
        actions = self._board.begin(now)
        if self._board.outdated:
            reconfigure.forget_gone(self._board)
        self._apply(event)
        self._dispatch()
        self.history.append((now, event, tuple(actions)))
        return actions

    @property
    def next_deadline(self) -> float:
        """When to post the next `Tick`, on the clock; infinite when never.

        Valid until the next `handle`.
        """
        return self._board.alarm

    @property
    def idle(self) -> bool:
        """Whether no model has a process, but for those that are handed over."""
        board = self._board
        return all(
            slot.state in DOWN or administration.is_handed_over(board, slot)
            for slot in board.slots.values()
        )

    @property
    def released(self) -> tuple[float, bool] | None:
        """Until when nothing loads, on the clock, and whether requests are refused meanwhile."""
        held = self._board.release
        return None if held is None or held.until <= self._clock() else (held.until, held.refuses)

    def waited(self, ticket: int) -> Phases:
        """Return how the client with `ticket` has spent its wait; nothing if it doesn't wait."""
        found = self._board.tickets.get(ticket)
        if found is None or ticket in found.slot.serving:
            return NO_WAIT
        return waited(found, self._clock())

    def view(self, model: str) -> ModelView:
        """Return what there is to see of `model`; raise KeyError when it isn't configured."""
        return _view(self._board.slots[model])

    def views(self) -> list[ModelView]:
        """Return what there is to see of all models, by name."""
        return [_view(slot) for slot in self._board.slots.values() if not slot.is_gone]

    def check_invariants(self) -> None:
        """Raise AssertionError when something contradicts itself; for tests."""
        invariants.check(self._board)

    def _apply(self, event: Event) -> None:
        board = self._board
        match event:
            case RequestArrived():
                admission.arrive(board, event)
            case RequestFinished():
                admission.finish(board, event)
            case Tick():
                pass
            case ModelChanged():
                news.model_changed(board, event)
            case ModelGoing():
                news.model_going(board, event)
            case ModelDeaf():
                news.model_deaf(board, event)
            case NeedChanged() | NeedEstimated() | ForeignChanged():
                news.memory_changed(board, event)
            case AbilityChanged():
                news.ability_changed(board, event)
            case LackChanged():
                news.lack_changed(board, event)
            case UnloadRequested():
                administration.unload(board, event)
            case SleepRequested():
                administration.sleep(board, event)
            case KeepRequested():
                administration.keep(board, event)
            case ReleaseRequested():
                release.release(board, event)
            case ResumeRequested():
                board.release = None
            case Reconfigured():
                reconfigure.take_over(board, event)
            case ShutdownRequested():
                administration.shut_down(board, event)
            case Adopted():
                adoption.adopt(board, event)
            case _:
                assert_never(event)

    def _dispatch(self) -> None:
        """Decide what happens now; the one end of every event."""
        board = self._board
        if board.outdated:
            reconfigure.replace_outdated(board)
        if board.unloading:
            administration.end_unloads(board)
        if board.is_shutting_down:
            administration.wind_down(board)
            return
        if board.release is not None:
            if not board.due(board.release.until):
                release.hold_back(board, board.release)
                return
            board.release = None
        if board.pinned:
            timers.call_pinned(board)
        closed: Collection[Slot] = board.unloading
        if board.queue and not admit_only_one(board):
            closed = self._walk()
        if board.timed:
            before = len(board.actions)
            timers.run_timers(board, closed)
            if board.queue and len(board.actions) > before:
                self._walk()
        if board.default is not None:
            timers.recall_default(board)

    def _walk(self) -> Collection[Slot]:
        """Walk over the queue until nothing moves; return who takes no younger tickets.

        What is set in motion for one entry may be what an older one has waited for.
        """
        while True:
            walk, before = Walk(self._board), len(self._board.actions)
            walk.run()
            if all(isinstance(action, _WORDS) for action in self._board.actions[before:]):
                return walk.closed


def _view(slot: Slot) -> ModelView:
    error = slot.lack or slot.error
    return ModelView(
        model=slot.name,
        state=slot.state,
        generation=slot.generation,
        in_flight=len(slot.serving),
        waiting=slot.waiting,
        paused=len(slot.serving) if slot.is_paused else 0,
        pinned=slot.spec.pinned,
        unloading=slot.unload_at is not None,
        ready_at=slot.ready_at if isfinite(slot.ready_at) else None,
        used_at=slot.used_at if isfinite(slot.used_at) else None,
        fails=slot.fails,
        retry_at=slot.retry_at if isfinite(slot.retry_at) else None,
        round_trip_s=slot.round_trip_s,
        back_s=slot.back_s,
        need=slot.need,
        error=None if error is None else str(error),
        exit_code=slot.exit_code,
        kept_s=slot.kept_s,
    )
