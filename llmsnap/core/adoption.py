"""R18: what an earlier proxy left: models that are up, or asleep, from the start."""

from __future__ import annotations

from dataclasses import replace

from llmsnap.core.board import Board
from llmsnap.core.cause import Cause, Why
from llmsnap.core.dispatch import may_load_now
from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import Adopted, Found
from llmsnap.core.slot import DOWN, Slot


def adopt(board: Board, event: Adopted) -> None:
    """Put into the books what was found; end what can't be there beside those that came first.

    Awake ones come first, and of those the pinned ones.
    """
    crowded = []
    known = [found for found in event.found if found.model in board.slots]
    for found in sorted(known, key=lambda found: _rank(board.slots[found.model], found)):
        slot = board.slots[found.model]
        if slot.state not in DOWN:
            continue
        slot.generation = found.generation
        slot.used_at = board.now
        if found.tier:
            _find_asleep(board, slot, found)
        elif not _find_awake(board, slot):
            crowded.append(slot)
    for slot in crowded:
        _end(board, slot)
    if crowded:
        board.ledger.tolerate()


def _rank(slot: Slot, found: Found) -> tuple[bool, bool]:
    return bool(found.tier), not slot.spec.pinned


def _find_awake(board: Board, slot: Slot) -> bool:
    """Put `slot` down as ready, if it fits beside those that are; say whether it did."""
    share = board.ledger.share_of(slot)
    if not (slot.servable and may_load_now(board, slot, share)):
        return False
    slot.move(Trigger.ADOPTED)
    slot.share, slot.booked = share, share.bytes
    slot.ready_at = board.now
    slot.ability_due = slot.spec.ability_follows
    return True


def _end(board: Board, slot: Slot) -> None:
    """Stop `slot`; nobody relied on what it holds, but it is there until its process is gone."""
    slot.move(Trigger.ADOPTED)
    slot.share, slot.booked = board.ledger.share_of(slot), {}
    board.stop(slot, Cause(Why.CROWDED))


def _find_asleep(board: Board, slot: Slot, found: Found) -> None:
    lack = board.ledger.tier_lack(found.tier, found.tier_bytes)
    slot.spec = replace(
        slot.spec, can_sleep=True, tier=found.tier, tier_bytes=found.tier_bytes, lower_tier=""
    )
    slot.move(Trigger.FOUND_ASLEEP)
    slot.tier_held = (found.tier, found.tier_bytes)
    if lack > 0:
        slot.tier_held = (found.tier, max(0, found.tier_bytes - round(lack)))
        board.stop(slot, Cause(Why.CROWDED))
    elif slot.spec.pinned:
        board.enqueue_call(slot)
