"""How models come and go, put down as records: why, for whom, how long, with what result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from llmsnap.core.cause import Why
from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import (
    Action,
    Admit,
    Event,
    ModelChanged,
    PageOut,
    Phases,
    Reject,
    Sleep,
    Start,
    Stop,
    Wake,
)
from llmsnap.errors import StartFailed
from llmsnap.runtime.lease import Lease
from llmsnap.runtime.rest import RestView
from llmsnap.sleep.driver import Moved
from llmsnap.telemetry.record import Departure, ExitRecord, MoveKind, MoveRecord, Result
from llmsnap.telemetry.recorder import Recorder
from llmsnap.telemetry.story import tell_move

logger = logging.getLogger(__name__)

_KINDS: Final[Mapping[type[Action], MoveKind]] = {
    Start: "start",
    Wake: "wake",
    Sleep: "sleep",
    PageOut: "page_out",
    Stop: "stop",
}
_ENDS: Final[Mapping[tuple[MoveKind, Trigger], Result]] = {
    ("start", Trigger.READY): "ok",
    ("start", Trigger.EXITED): "failed",
    ("wake", Trigger.WOKEN): "ok",
    ("wake", Trigger.SLEPT): "refused",
    ("wake", Trigger.EXITED): "failed",
    ("sleep", Trigger.SLEPT): "ok",
    ("sleep", Trigger.WOKEN): "refused",
    ("sleep", Trigger.EXITED): "failed",
    ("page_out", Trigger.PAGED): "ok",
    ("page_out", Trigger.SLEPT): "refused",
    ("page_out", Trigger.EXITED): "failed",
    ("stop", Trigger.EXITED): "ok",
}


class Moves:
    """Follows what the scheduler orders and what runners report.

    `leases` are all that wait or are held, by ticket; `rest` tells how a model sleeps.
    """

    def __init__(
        self, recorder: Recorder, leases: Mapping[int, Lease], rest: Callable[[str], RestView]
    ) -> None:
        self._recorder = recorder
        self._leases = leases
        self._rest = rest
        self._under_way: dict[str, MoveRecord] = {}
        self._departed: dict[str, list[Departure]] = {}
        """Who made room, by the model that it was for."""

    def follow(self, event: Event, actions: Sequence[Action]) -> None:
        """Take in what has changed a model's state."""
        now = self._recorder.clock()
        if isinstance(event, ModelChanged):
            self._reported(event, actions, now)
        for action in actions:
            if isinstance(action, Start | Wake | Sleep | PageOut | Stop):
                self._ordered(action, now)

    def _ordered(self, order: Start | Wake | Sleep | PageOut | Stop, now: float) -> None:
        model, cause = order.model, order.cause
        if (cut_short := self._under_way.get(model)) is not None:
            self._end(cut_short, now, "cancelled")
        move = MoveRecord(
            model=model,
            kind=_KINDS[type(order)],
            generation=order.generation,
            cause=cause,
            began_at=now,
        )
        self._under_way[model] = move
        if isinstance(order, Sleep | PageOut | Wake):
            move.driver = self._rest(model).driver or ""
        if move.is_swap:
            move.departures = tuple(self._departed.pop(model, ()))
            self._came_back(model)
        elif cause.why is Why.ROOM:
            self._departed.setdefault(cause.model, []).append(Departure(model, move.kind))
        if isinstance(order, Sleep):
            for lease in self._held(model):
                lease.pause(now)
                move.paused += 1

    def _reported(self, event: ModelChanged, actions: Sequence[Action], now: float) -> None:
        model, trigger = event.model, event.trigger
        move = self._under_way.get(model)
        if move is not None and move.generation != event.generation:
            return  # late news
        if trigger is Trigger.WOKEN:
            for lease in self._held(model):
                lease.resume(now)
        if move is not None and (result := _ENDS.get((move.kind, trigger))):
            if result in ("ok", "failed") and move.is_swap:
                self._share(move, actions, now)
            move.error = str(event.error or "")
            self._end(move, now, result)
        if trigger is Trigger.EXITED:
            self._recorder.exit(_exit_record(event, move, now))

    def _share(self, move: MoveRecord, actions: Sequence[Action], now: float) -> None:
        """Have those who waited for a swap to its end know it, and it what they waited for."""
        waits = []
        for action in actions:
            lease = self._leases.get(action.ticket) if isinstance(action, Admit | Reject) else None
            if lease is not None and lease.model == move.model:
                lease.swap = move
                waits.append(lease.phases)
        took_s = now - move.began_at
        alone = Phases(wake_s=took_s) if move.kind == "wake" else Phases(start_s=took_s)
        move.phases = max(waits, key=lambda phases: phases.total_s, default=alone)

    def _end(self, move: MoveRecord, now: float, result: Result) -> None:
        del self._under_way[move.model]
        move.ended_at, move.result = now, result
        if result == "ok" and move.driver:
            moved = _moved(self._rest(move.model), move.kind)
            move.moved_bytes = dict(moved.bytes) if moved else {}
        self._recorder.move(move)
        logger.log(self._weight(move), "model %s: %s", move.model, tell_move(move))

    def _weight(self, move: MoveRecord) -> int:
        """Return how much a move matters in the log, where each swap is to be one line.

        What was refused has a line of its own, with the reason. Who made room is told with the one
        that it was for, if somebody still waits for that.
        """
        if move.result == "refused" or (move.result == "failed" and not move.is_swap):
            return logging.DEBUG
        cause = move.cause
        is_told = cause.why is Why.ROOM and any(
            lease.model == cause.model and not lease.granted for lease in self._leases.values()
        )
        return logging.DEBUG if is_told else logging.INFO

    def _held(self, model: str) -> list[Lease]:
        return [lease for lease in self._leases.values() if lease.model == model and lease.granted]

    def _came_back(self, model: str) -> None:
        """Forget for whom `model` made room, should that one not have come yet."""
        for wanted, departed in list(self._departed.items()):
            left = [departure for departure in departed if departure.model != model]
            if left:
                self._departed[wanted] = left
            else:
                del self._departed[wanted]


def _moved(rest: RestView, kind: MoveKind) -> Moved | None:
    match kind:
        case "sleep":
            return rest.slept
        case "page_out":
            return rest.paged
        case _:
            return rest.woken


def _exit_record(event: ModelChanged, move: MoveRecord | None, now: float) -> ExitRecord:
    end = ExitRecord(
        model=event.model,
        generation=event.generation,
        reason="crashed",
        at=now,
        error=str(event.error or ""),
    )
    if event.error is None or (move is not None and move.kind == "stop"):
        end.reason = "ordered"
    elif event.oom:
        end.reason = "out_of_memory"
    elif isinstance(event.error, StartFailed):
        end.reason = "start_failed"
    return end
