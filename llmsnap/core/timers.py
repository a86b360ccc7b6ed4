"""R11, R12: what happens because time has passed, or because a model is pinned."""

from __future__ import annotations

from collections.abc import Collection

from llmsnap.core.board import Board
from llmsnap.core.cause import ASKED, Cause, Why
from llmsnap.core.lifecycle import State
from llmsnap.core.slot import DOWN, SLUMBER, Slot
from llmsnap.core.wayout import TierRoom, put_out, tier_room


def call_pinned(board: Board) -> None:
    """Give each pinned model that isn't up a place in the queue (R11).

    Not one that an administrator unloaded, and after failed starts only when the next try is due.
    """
    for slot in board.pinned:
        if (
            slot.state in DOWN
            and slot.call is None
            and not slot.dismissed
            and board.due(max(slot.retry_at, slot.call_at))
        ):
            board.enqueue_call(slot)


def run_timers(board: Board, closed: Collection[Slot]) -> None:
    """Put idle models to sleep, or stop them, when their time has come (R12)."""
    for slot in board.timed:
        if slot.serving or slot.waiting:
            continue
        if slot.state is State.READY and slot not in closed:
            _idle(board, slot)
        elif slot.state in SLUMBER:
            _asleep(board, slot)


def _asleep(board: Board, slot: Slot) -> None:
    if not slot.spec.pinned and board.due(slot.used_at + slot.spec.ttl_s):
        board.stop(slot, _idled(board, slot, Why.TTL))


def _idle(board: Board, slot: Slot) -> None:
    spec = slot.spec
    if slot.asked_to_sleep:
        if spec.pinned and tier_room(board, slot)[0] is TierRoom.NO:
            slot.asked_to_sleep = False  # a pinned one would be stopped, and loaded again
        else:
            put_out(board, slot, ASKED)
    elif not spec.pinned:
        if board.due(slot.used_at + spec.ttl_s):
            board.stop(slot, _idled(board, slot, Why.TTL))
        elif spec.can_sleep and board.due(slot.used_at + spec.sleep_after_s):
            # One that can't sleep stays: only `ttl` stops what is idle.
            put_out(board, slot, _idled(board, slot, Why.IDLE))


def _idled(board: Board, slot: Slot, why: Why) -> Cause:
    return Cause(why, idle_s=board.now - slot.used_at)
