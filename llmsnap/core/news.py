"""R4: what the shell reports about processes, memory and sleep drivers."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Final

from llmsnap.core import reasons
from llmsnap.core.board import Board
from llmsnap.core.cause import Cause, Why
from llmsnap.core.lifecycle import TRANSITIONS, State, Trigger
from llmsnap.core.messages import (
    AbilityChanged,
    ForeignChanged,
    LackChanged,
    ModelChanged,
    ModelDeaf,
    ModelGoing,
    NeedChanged,
    NeedEstimated,
)
from llmsnap.core.slot import COMING, NOWHERE, Slot
from llmsnap.core.timeline import Phase

_NEWS: Final = frozenset(
    {Trigger.READY, Trigger.SLEPT, Trigger.PAGED, Trigger.WOKEN, Trigger.EXITED}
)
_MOST_REFUSED_WAKES: Final = 4
"""So many in a row, and it is stopped, to be started cold."""
_GROWTH: Final = 1.15
"""By how much a need is raised when its memory ran out and nobody has measured it."""
_MOST_BACK_OFF_S: Final = 60.0
_STEADY_S: Final = 60.0
"""Up for so long, a crash is the first one again."""


def model_changed(board: Board, event: ModelChanged) -> None:
    """Take in what happened to a process.

    Late news of an older generation is ignored, and so is what can't apply any more: a process may
    become ready in the same moment in which it was ordered to stop.
    """
    slot = board.slots.get(event.model)
    if slot is None or event.generation != slot.generation or event.trigger not in _NEWS:
        return
    if event.trigger not in TRANSITIONS[slot.state]:
        return
    match event.trigger:
        case Trigger.EXITED:
            _exited(board, slot, event)
        case Trigger.WOKEN if slot.state is State.SLEEPING:
            slot.move(Trigger.WOKEN)
            board.drop_call(slot)
            _admit_waiting(board, slot)
        case Trigger.SLEPT if slot.state is State.WAKING:
            _wake_refused(board, slot, event)
        case Trigger.SLEPT | Trigger.PAGED:
            _slept(board, slot, event.trigger)
        case _:
            _came_up(board, slot, event.trigger)


def model_going(board: Board, event: ModelGoing) -> None:
    """Take in that an awake model's process ends by itself: who waits keeps the place (R4)."""
    slot = board.slots.get(event.model)
    if slot is None or event.generation != slot.generation or slot.state is not State.READY:
        return
    board.end(slot, lambda _: event.error, None)
    slot.error = event.error
    _crashed(board, slot)


def model_deaf(board: Board, event: ModelDeaf) -> None:
    """Close an awake model that nobody reaches: its answers end, then its process (R4)."""
    slot = board.slots.get(event.model)
    if slot is None or event.generation != slot.generation or slot.state is not State.READY:
        return
    if slot not in board.unloading:
        slot.unload_at, slot.is_deaf = inf, True
        board.unloading.append(slot)


def memory_changed(board: Board, event: NeedChanged | NeedEstimated | ForeignChanged) -> None:
    """Take in what was found out about memory."""
    match event:
        case NeedChanged():
            need_changed(board, event)
        case NeedEstimated():
            need_estimated(board, event)
        case ForeignChanged():
            foreign_changed(board, event)


def need_changed(board: Board, event: NeedChanged) -> None:
    """Take in what a model needs, as it was learned.

    While the model is awake its need may grow by itself (prompt cache, KV); that never raises it
    above what pinned models leave to it.
    """
    slot = board.slots.get(event.model)
    if slot is None:
        return
    growing = slot.state is State.READY
    _learn(board, slot, board.ledger.capped(slot, event.need) if growing else dict(event.need))
    slot.need_is_news = True
    if slot.share is not None:
        slot.hold(board.ledger.share_of(slot))


def need_estimated(board: Board, event: NeedEstimated) -> None:
    """Take in that nothing better than an estimate is known; from the next load on it counts.

    A model that is up stays in the books as it is: its memory is what it is.
    """
    slot = board.slots.get(event.model)
    if slot is not None:
        slot.spec = replace(slot.spec, certain=event.certain)
        slot.need, slot.estimate = None, event.estimate
        board.ledger.settle()


def foreign_changed(board: Board, event: ForeignChanged) -> None:
    """Take in what other programs use; it keeps models out, but evicts none."""
    if event.device in board.ledger.foreign:
        board.ledger.foreign[event.device] = event.used_bytes


def ability_changed(board: Board, event: AbilityChanged) -> None:
    """Take in what a sleep driver can do; a model that is asleep keeps its books as they are."""
    slot = board.slots.get(event.model)
    if slot is not None:
        slot.spec = replace(
            slot.spec,
            can_sleep=event.can_sleep,
            can_pause=event.can_pause,
            tier=event.tier,
            tier_bytes=event.tier_bytes,
            lower_tier=event.lower_tier,
            lower_bytes=event.lower_bytes,
        )
        slot.ability_due = False


def lack_changed(board: Board, event: LackChanged) -> None:
    """Take in what a model lacks to be started; what is up stays up."""
    slot = board.slots.get(event.model)
    if slot is not None:
        slot.spec = replace(slot.spec, lack=event.lack)


def _came_up(board: Board, slot: Slot, trigger: Trigger) -> None:
    order = Trigger.START if trigger is Trigger.READY else Trigger.WAKE
    slot.move(trigger)
    slot.pace.end(order, board.now)
    slot.timeline.enter(Phase.QUEUE, board.now)
    slot.ready_at = slot.used_at = board.now
    slot.fails = slot.ooms = slot.refused_wakes = 0
    slot.retry_at = slot.wake_at = -inf
    slot.ability_due = trigger is Trigger.READY and slot.spec.ability_follows
    slot.error = None
    board.drop_call(slot)
    # Those it was loaded for go in before anybody may choose it as a victim.
    _admit_waiting(board, slot)


def _admit_waiting(board: Board, slot: Slot) -> None:
    """Let all in who wait, unless for another process than this one, or until it may load."""
    if not slot.is_outdated and board.release is None:
        board.admit_waiting(slot)


def _slept(board: Board, slot: Slot, trigger: Trigger) -> None:
    """It sleeps, or was paged out, or couldn't be: then all of it is still where it was."""
    if slot.state is State.SLEEPING:
        slot.pace.end(Trigger.SLEEP, board.now)
    elif trigger is Trigger.PAGED:
        slot.tier_held = slot.bound_for
    slot.bound_for = NOWHERE
    slot.move(trigger)


def _wake_refused(board: Board, slot: Slot, event: ModelChanged) -> None:
    """It couldn't be woken, and sleeps on: try again in 1, 2, 4 s, then start it cold."""
    slot.move(Trigger.SLEPT)
    slot.timeline.enter(Phase.QUEUE, board.now)
    slot.refused_wakes += 1
    if slot.refused_wakes < _MOST_REFUSED_WAKES:
        slot.wake_at = board.now + 2.0 ** (slot.refused_wakes - 1)
    else:
        error = event.error or reasons.lost(slot)
        board.end(slot, lambda _: error, Cause(Why.REFUSED))


def _exited(board: Board, slot: Slot, event: ModelChanged) -> None:
    """A process is gone, and its memory is shown free."""
    before = slot.state
    slot.exit_code = event.exit_code
    slot.move(Trigger.EXITED)
    slot.unload_at, slot.is_deaf = None, False
    slot.timeline.enter(Phase.QUEUE, board.now)
    if slot in board.unloading:
        board.unloading.remove(slot)
    if before is State.STOPPING:
        if slot.stopped_from is State.READY:
            slot.pace.end(Trigger.STOP, board.now)
        return
    if event.oom and before in COMING:
        _raise_need(board, slot)
    if before is State.STARTING:
        slot.error = event.error or reasons.start_failed(slot)
        if event.oom and slot.ooms > 1:
            slot.error = reasons.out_of_memory(board, slot, slot.error)
        if not event.oom or slot.ooms > 1:
            _start_failed(board, slot)
    else:
        slot.error = event.error or reasons.lost(slot)
        board.abort_serving(slot, slot.error)
        _crashed(board, slot)


def _crashed(board: Board, slot: Slot) -> None:
    """Let time pass before a pinned model is loaded again by itself, if it never lasts (R11)."""
    lasted = board.now - slot.ready_at >= _STEADY_S
    slot.crashes = 1 if lasted else slot.crashes + 1
    slot.call_at = board.now + _pause_s(slot.crashes)


def _start_failed(board: Board, slot: Slot) -> None:
    """Refuse all who wait, and let some time pass before the next try: none, 2, 4 … 60 s."""
    slot.fails += 1
    slot.retry_at = board.now + _pause_s(slot.fails)
    board.drop_call(slot)
    board.reject_waiting(slot, slot.error or reasons.start_failed(slot))


def _pause_s(times: int) -> float:
    """Return how long to wait after so many failures in a row: nothing, then 2, 4 … 60 s."""
    return min(2.0 ** min(times - 1, 10), _MOST_BACK_OFF_S) if times > 1 else 0.0


def _raise_need(board: Board, slot: Slot) -> None:
    """Memory ran out on the way up: it needs more than was thought."""
    slot.ooms += 1
    if slot.need_is_news:
        return
    if slot.need is not None:
        _learn(board, slot, {d: round(n * _GROWTH) for d, n in slot.need.items()})
    elif slot.estimate is not None:
        slot.estimate = {d: round(n * _GROWTH) for d, n in slot.estimate.items()}


def _learn(board: Board, slot: Slot, need: dict[str, int]) -> None:
    slot.need = need
    board.ledger.settle()
