"""R9: how a model leaves its devices."""

from __future__ import annotations

from enum import Enum, auto

from llmsnap.core.board import Board
from llmsnap.core.cause import Cause, Why
from llmsnap.core.lifecycle import State
from llmsnap.core.slot import Slot


class TierRoom(Enum):
    """Whether a model could go to sleep."""

    NOW = auto()
    SOON = auto()
    """Once what leaves the tier, or can be stopped there, is gone."""
    NO = auto()


def put_out(board: Board, slot: Slot, cause: Cause) -> bool:
    """Put READY `slot` to sleep, or stop it if it can't sleep; say whether an order went out.

    Where its tier is full, the coldest models there are stopped and `slot` goes on until they are
    gone. One that serves is never stopped: where it can't sleep it goes on until it is idle.
    """
    room, coldest = tier_room(board, slot)
    for cold in coldest:
        board.stop(cold, Cause(Why.TIER, slot.name))
    if room is TierRoom.NOW:
        board.sleep(slot, cause)
        return True
    if room is TierRoom.NO and not slot.serving:
        board.stop(slot, cause)
        return True
    return bool(coldest)


def tier_room(board: Board, slot: Slot) -> tuple[TierRoom, list[Slot]]:
    """Say whether `slot` could go to sleep, and which models must be stopped for it before."""
    if not slot.spec.can_sleep:
        return TierRoom.NO, []
    if board.ledger.tier_lack(slot, soon=False) <= 0:
        return TierRoom.NOW, []
    lack = board.ledger.tier_lack(slot, soon=True)
    coldest = []
    for other in sorted(board.slots.values(), key=lambda other: (other.used_at, other.name)):
        if lack > 0 and _may_give_way(other, slot):
            coldest.append(other)
            lack -= other.tier_held[1]
    return (TierRoom.SOON, coldest) if lack <= 0 else (TierRoom.NO, [])


def _may_give_way(cold: Slot, slot: Slot) -> bool:
    """Whether `cold` may be stopped to make room in the tier of `slot`."""
    return (
        cold.state is State.ASLEEP
        and cold.tier_held[0] == slot.spec.tier
        and cold.tier_held[1] > 0
        and not cold.spec.pinned
        and not cold.is_paused
        and not cold.waiting
        and (bool(slot.serving) or cold.used_at < slot.used_at)
    )
