"""R17: all memory given back for a while, and nothing loaded until it may be taken again."""

from __future__ import annotations

from llmsnap.core import reasons
from llmsnap.core.board import Board, Release
from llmsnap.core.cause import RELEASED
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ReleaseRequested
from llmsnap.core.slot import Slot, Ticket
from llmsnap.core.wayout import put_out


def release(board: Board, event: ReleaseRequested) -> None:
    """Let nothing load for some time; a second request replaces the first one."""
    board.release = Release(
        until=board.now + event.for_s,
        cut_at=board.now + event.timeout_s,
        refuses=event.refuse,
    )
    if event.refuse:
        for entry in list(board.queue.values()):
            if isinstance(entry, Ticket):
                board.reject(entry, reasons.released(board, board.release, entry.slot))


def hold_back(board: Board, held: Release) -> None:
    """Put out what is up, as soon as it may go; nobody is let in, and nobody waits too long."""
    for slot in board.slots.values():
        if slot.state is State.STARTING:
            board.end(slot, reasons.unloaded, RELEASED)  # it serves nobody, and has lost nothing
        elif slot.state is State.READY and slot not in board.unloading:
            _put_out(board, held, slot)
    for entry in list(board.queue.values()):
        if isinstance(entry, Ticket) and board.due(entry.arrived + board.max_wait_s):
            board.reject(entry, reasons.released(board, held, entry.slot))


def _put_out(board: Board, held: Release, slot: Slot) -> None:
    if not slot.serving or slot.spec.can_pause:
        put_out(board, slot, RELEASED)
    if slot.state is State.READY and slot.serving and board.due(held.cut_at):
        board.end(slot, reasons.unloaded, RELEASED)
