"""R9: how a model leaves its devices."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from llmsnap.core.board import Board
from llmsnap.core.cause import Cause, Why
from llmsnap.core.lifecycle import State
from llmsnap.core.slot import Slot

_PATIENCE_S: Final = 1.0
"""How long after its start a model waits for word of how it can sleep, rather than be stopped."""


class TierRoom(Enum):
    """Whether a model could go to sleep."""

    NOW = auto()
    SOON = auto()
    """Once what leaves the tier, or can be made to, is gone, or it is known how it sleeps."""
    NO = auto()


def put_out(board: Board, slot: Slot, cause: Cause) -> bool:
    """Put READY `slot` to sleep, or stop it if it can't sleep; say whether an order went out.

    Where its tier is full, the coldest models there must leave it, and `slot` goes on until they
    have. One that serves is never stopped: where it can't sleep it goes on until it is idle.
    """
    room, coldest = tier_room(board, slot)
    for cold in coldest:
        _leave_tier(board, cold, Cause(Why.TIER, slot.name))
    if room is TierRoom.NOW:
        board.sleep(slot, cause)
        return True
    if room is TierRoom.NO and not slot.serving:
        board.stop(slot, cause)
        return True
    return bool(coldest)


def tier_room(board: Board, slot: Slot) -> tuple[TierRoom, list[Slot]]:
    """Say whether `slot` could go to sleep, and which models must leave its tier for it before."""
    spec, ledger = slot.spec, board.ledger
    if not spec.can_sleep:
        not_known_yet = slot.ability_due and not board.due(slot.ready_at + _PATIENCE_S)
        return (TierRoom.SOON if not_known_yet else TierRoom.NO), []
    if ledger.tier_lack(spec.tier, spec.tier_bytes) <= 0:
        return TierRoom.NOW, []
    lack = ledger.tier_lack(spec.tier, spec.tier_bytes, soon=True)
    coldest = []
    for other in sorted(board.slots.values(), key=lambda other: (other.used_at, other.name)):
        if lack > 0 and _may_give_way(other, slot):
            coldest.append(other)
            lack -= other.tier_held[1]
    return (TierRoom.SOON, coldest) if lack <= 0 else (TierRoom.NO, [])


def _leave_tier(board: Board, cold: Slot, cause: Cause) -> None:
    """Have `cold` paged out to its lower tier if it isn't there and there is room, else stop it."""
    lower, amount = cold.spec.lower_tier, cold.spec.lower_bytes
    is_above = bool(lower) and cold.tier_held[0] == cold.spec.tier
    if is_above and board.ledger.tier_lack(lower, amount) <= 0:
        board.page_out(cold, cause)
    else:
        board.stop(cold, cause)


def _may_give_way(cold: Slot, slot: Slot) -> bool:
    """Whether `cold` may be made to leave the tier, to make room for `slot`."""
    return (
        cold.state is State.ASLEEP
        and cold.tier_held[0] == slot.spec.tier
        and cold.tier_held[1] > 0
        and not cold.spec.pinned
        and not cold.is_paused
        and not cold.waiting
        and (bool(slot.serving) or cold.used_at < slot.used_at)
    )
