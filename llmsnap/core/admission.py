"""R1-R3: who gets a place in the queue, and who leaves it."""

from __future__ import annotations

from llmsnap.core import reasons
from llmsnap.core.board import Board
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Reject, RequestArrived, RequestFinished
from llmsnap.core.slot import Slot
from llmsnap.errors import LlmsnapError


def arrive(board: Board, event: RequestArrived) -> None:
    """Give the client a place in the queue, or refuse it (R2)."""
    if event.ticket in board.tickets:
        return
    slot = board.slots.get(event.model)
    if slot is None or slot.is_removed:
        board.actions.append(Reject(event.ticket, reasons.unknown_model(event.model)))
        return
    refusal = _refusal(board, slot, limited=event.limited, is_use=event.is_use)
    if refusal is not None:
        board.actions.append(Reject(event.ticket, refusal))
        return
    if event.is_use:
        if slot.is_unused and not slot.waiting:
            slot.gap_s = board.now - slot.used_at
        slot.kept_s = None
    is_helper = slot.spec.is_helper if event.is_helper is None else event.is_helper
    board.enqueue(
        event.ticket, slot, limited=event.limited, is_helper=is_helper, is_use=event.is_use
    )


def finish(board: Board, event: RequestFinished) -> None:
    """Forget a client that was served, failed or went away (R3); unknown ones are ignored."""
    ticket = board.tickets.get(event.ticket)
    if ticket is not None:
        board.finish(ticket)


def _refusal(board: Board, slot: Slot, *, limited: bool, is_use: bool) -> LlmsnapError | None:
    """Return why a request for `slot` isn't even queued, or None."""
    if board.is_shutting_down:
        return reasons.shutting_down(slot.name)
    if board.release is not None and board.release.refuses:
        return reasons.released(board, board.release, slot)
    limit = slot.spec.concurrency_limit
    if limited and 0 < limit <= slot.limited:
        return reasons.over_limit(slot)
    if not slot.servable:
        return reasons.does_not_fit(board, slot)
    if not is_use and (slot.state is not State.READY or board.release is not None):
        return reasons.no_use(slot)
    if board.now < slot.retry_at:
        return reasons.backing_off(slot, board.now)
    return None
