"""R16: other settings while models run; only what isn't as they want it is touched."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from llmsnap.core import reasons
from llmsnap.core.board import Board
from llmsnap.core.cause import RECONFIGURED
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelSpec, Reconfigured
from llmsnap.core.pace import Pace
from llmsnap.core.slot import DOWN, SLUMBER, Slot


def take_over(board: Board, event: Reconfigured) -> None:
    """Have the new settings count from now on; what is up stays in the books as it is.

    Nobody is made to leave because a budget or a group is another now: that counts from the next
    load on.
    """
    wanted = {spec.name: spec for spec in event.specs}
    before = board.slots
    slots = [_slot_for(spec, before.get(spec.name)) for spec in event.specs]
    for name, slot in before.items():
        if name not in wanted:
            _remove(slot)
            slots.append(slot)
    for name in event.outdated & before.keys() & wanted.keys():
        before[name].is_outdated = before[name].state not in DOWN
    board.take(slots)
    board.ledger.take(board.slots.values(), event.capacity, event.tiers)
    board.go_by(event.schedule, event.constraints)
    for slot in board.slots.values():
        _settle_call(board, slot)
        if slot.share is not None:
            _settle_share(board, slot)
    board.ledger.tolerate()


def replace_outdated(board: Board) -> None:
    """End the processes that are to be replaced, or to go, as soon as they owe nothing."""
    for slot in list(board.outdated):
        if slot.state in DOWN:
            slot.is_outdated = False
            if not slot.is_removed:
                board.outdated.remove(slot)
        elif slot.state is State.READY:
            if slot not in board.unloading:
                slot.unload_at = inf
                board.unloading.append(slot)
        elif not (slot.state is State.STOPPING or _is_wanted_as_it_is(slot)):
            board.end(slot, reasons.unloaded, RECONFIGURED)


def _is_wanted_as_it_is(slot: Slot) -> bool:
    """Whether a process that isn't up is to come up once more."""
    return slot.is_paused or (slot.is_removed and slot.waiting > 0)


def _slot_for(spec: ModelSpec, slot: Slot | None) -> Slot:
    if slot is None:
        return Slot(spec, spec.need, spec.estimate, Pace(spec.round_trip_s))
    if slot.is_removed:  # and is there again, while its old process is still on its way out
        slot.is_removed, slot.is_outdated = False, slot.state not in DOWN
    slot.spec = _with_ability(spec, slot.spec)
    slot.need, slot.estimate = spec.need, spec.estimate
    slot.need_is_news = True
    slot.fails, slot.retry_at = 0, -inf  # whatever was wrong may be mended
    return slot


def _with_ability(spec: ModelSpec, before: ModelSpec) -> ModelSpec:
    """Return `spec` with what was found out about how the model can sleep."""
    if not spec.ability_follows:
        return spec
    return replace(
        spec,
        can_sleep=before.can_sleep,
        can_pause=before.can_pause,
        tier=before.tier,
        tier_bytes=before.tier_bytes,
        lower_tier=before.lower_tier,
        lower_bytes=before.lower_bytes,
    )


def _remove(slot: Slot) -> None:
    """Leave to `slot` only what it owes."""
    slot.is_removed = True
    slot.is_outdated = False
    slot.spec = replace(slot.spec, pinned=False, is_default=False, sleep_after_s=inf, ttl_s=inf)


def forget_gone(board: Board) -> None:
    """Forget the models of which nothing was left after the last event.

    Not sooner: readers want to see what became of them.
    """
    slots = [slot for slot in board.slots.values() if not slot.is_gone]
    if len(slots) < len(board.slots):
        board.take(slots)
        board.ledger.take(slots, board.ledger.capacity, board.ledger.tiers)


def _settle_call(board: Board, slot: Slot) -> None:
    """A model that isn't pinned any more doesn't call for itself; one that is now does."""
    if not slot.spec.pinned and not slot.is_paused:
        board.drop_call(slot)
    elif slot.spec.pinned and slot.state in SLUMBER and slot.call is None and not slot.dismissed:
        board.enqueue_call(slot)


def _settle_share(board: Board, slot: Slot) -> None:
    """Put down anew what a model that is up holds, if more than an estimate is known of that."""
    assert slot.share is not None
    if slot.need is None:
        share = replace(slot.share, pinned=slot.spec.pinned)
    else:
        share = board.ledger.share_of(slot)
    slot.hold(share)
