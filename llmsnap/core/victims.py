"""R7, R8, R10: which models make room for one that is wanted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from llmsnap.core.board import Board
from llmsnap.core.lifecycle import State
from llmsnap.core.placement import Share, pick_victims
from llmsnap.core.slot import Call, Entry, Slot, Ticket
from llmsnap.core.wayout import TierRoom, tier_room


@dataclass(frozen=True, slots=True)
class Want:
    """What an entry of the queue lacks before its model can load."""

    entry: Entry
    short: Mapping[str, int]
    """Bytes a device."""
    excluded: Collection[Slot]
    """READY models that groups don't allow beside it: all of them must go."""
    is_fair: bool
    """Whether it has waited long enough to make others leave their clients."""

    @property
    def is_helpers(self) -> bool:
        """Whether it must leave those alone that are in use, however long it waits."""
        return isinstance(self.entry, Ticket) and self.entry.is_helper


def find_victims(board: Board, want: Want, closed: Collection[Slot]) -> list[Slot] | None:
    """Return the models that make room for `want`, or None if too few may go yet (R7).

    Idle ones first; then, if it is fair, also those that can be paused in the middle of their
    answers; then those that have been awake for long enough, which finish their answers first.
    """
    candidates = [
        slot
        for slot in board.slots.values()
        if slot.state is State.READY
        and not slot.spec.pinned
        and slot not in closed
        and _would_help(slot, want)
        and (not want.is_helpers or _is_out_of_use(board, slot))
    ]
    idle = [
        slot for slot in candidates if not slot.serving and _is_released(board, slot, want.is_fair)
    ]
    found = _cheapest(board, idle, want)
    if found is not None or not want.is_fair:
        return found
    # Idle ones are asked too: their deadlines count if they take a ticket in this very walk.
    pausable = [slot for slot in candidates if is_pausable(board, slot, want) and slot.serving]
    if pausable:
        found = _cheapest(board, idle + pausable, want)
        if found is not None:
            return found
    long_awake = [
        slot
        for slot in candidates
        if slot not in idle and board.due(slot.ready_at + slot.min_awake_s)
    ]
    return _cheapest(board, idle + long_awake, want)


def is_pausable(board: Board, slot: Slot, want: Want) -> bool:
    """Whether busy `slot` may be put to sleep in the middle of its answers (R10)."""
    entry = want.entry
    is_pause = isinstance(entry, Call) and entry.is_pause
    return (
        slot.spec.can_pause
        and (is_pause or board.due(entry.since + board.schedule.preempt_after_s))
        and board.due(slot.ready_at + slot.slice_s)
        and tier_room(board, slot)[0] is not TierRoom.NO
    )


def _is_out_of_use(board: Board, slot: Slot) -> bool:
    """Whether a helper may put `slot` out: another helper, or one that nobody used for long."""
    if slot.spec.is_helper:
        return True
    in_use = slot.serving or slot.waiting
    return not in_use and board.due(slot.used_at + slot.min_awake_s)


def _would_help(slot: Slot, want: Want) -> bool:
    on_short_device = slot.share is not None and not want.short.keys().isdisjoint(slot.share.bytes)
    return on_short_device or slot in want.excluded


def _is_released(board: Board, slot: Slot, is_fair: bool) -> bool:
    """Whether idle `slot` may go (R8): at once, unless its client is expected back."""
    hold_s = min(board.schedule.hold_s, slot.round_trip_s)
    expected_back = slot.gap_s <= hold_s and not board.due(slot.used_at + hold_s)
    return not expected_back or (is_fair and board.due(slot.ready_at + slot.min_awake_s))


def _cheapest(board: Board, candidates: Sequence[Slot], want: Want) -> list[Slot] | None:
    """Return the cheapest of `candidates` that cover `want`, or None."""
    if not set(want.excluded) <= set(candidates):
        return None
    short = dict(want.short)
    for slot in want.excluded:
        for device, freed in _share(slot).bytes.items():
            if device in short:
                short[device] -= freed
    ranked = sorted(
        (slot for slot in candidates if slot not in want.excluded),
        key=lambda slot: _rank(board, slot),
    )
    picked = pick_victims([_share(slot) for slot in ranked], short)
    if picked is None:
        return None
    return [*want.excluded, *(board.slots[share.model] for share in picked)]


def _rank(board: Board, slot: Slot) -> tuple[bool, float, str]:
    """Return a key that puts first who costs least to send away.

    Busy ones are ranked by what doesn't change while they drain: with another key the choice could
    flip to a second model when the first has finished an answer.
    """
    if slot.serving:
        return True, slot.ready_at, slot.name
    idle_s = max(board.now - slot.used_at, 1.0)
    return False, slot.round_trip_s / idle_s, slot.name


def _share(slot: Slot) -> Share:
    return slot.share or Share(slot.name, {})
