"""R11, R12: what happens because time has passed, or because a model is to be up by itself."""

from __future__ import annotations

from collections.abc import Collection

from llmsnap.core.board import Board
from llmsnap.core.cause import ASKED, Cause, Why
from llmsnap.core.dispatch import may_load_now
from llmsnap.core.lifecycle import State
from llmsnap.core.slot import DOWN, SLUMBER, Slot
from llmsnap.core.wayout import TierRoom, put_out, tier_room


def call_pinned(board: Board) -> None:
    """Give each pinned model that isn't up a place in the queue (R11).

    Not one that an administrator unloaded, nor one that can't start, and after failed starts only
    when the next try is due.
    """
    for slot in board.pinned:
        if (
            slot.state in DOWN
            and slot.call is None
            and not slot.dismissed
            and slot.lack is None
            and board.due(max(slot.retry_at, slot.call_at))
        ):
            board.enqueue_call(slot)


def recall_default(board: Board) -> None:
    """Bring the default model back if nobody waits, and nobody has to leave for it (R11).

    Not one that an administrator unloaded or put to sleep, before it is asked for, nor one that
    can't start.
    """
    slot = board.default
    if slot is None or board.queue or slot.dismissed or slot.lack is not None:
        return
    if slot.state not in DOWN | SLUMBER:
        return
    share = board.ledger.share_of(slot)
    if may_load_now(board, slot, share) and board.due(
        max(slot.retry_at, slot.call_at, slot.wake_at)
    ):
        board.load(slot, share, Cause(Why.DEFAULT))


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
    if not _stays(slot) and board.due(slot.used_at + _ttl_s(slot)):
        board.stop(slot, _idled(board, slot, Why.TTL))


def _idle(board: Board, slot: Slot) -> None:
    spec = slot.spec
    if slot.asked_to_sleep:
        if spec.pinned and tier_room(board, slot)[0] is TierRoom.NO:
            slot.asked_to_sleep = False  # a pinned one would be stopped, and loaded again
        else:
            put_out(board, slot, ASKED)
    elif not _stays(slot):
        if board.due(slot.used_at + _ttl_s(slot)):
            board.stop(slot, _idled(board, slot, Why.TTL))
        elif slot.kept_s is not None:
            if board.due(slot.used_at + slot.kept_s):
                put_out(board, slot, _idled(board, slot, Why.IDLE))
        elif spec.can_sleep and board.due(slot.used_at + spec.sleep_after_s):
            # One that can't sleep stays: only `ttl` stops what is idle.
            put_out(board, slot, _idled(board, slot, Why.IDLE))


def _ttl_s(slot: Slot) -> float:
    """Return after how long idle `slot` is stopped: not while somebody wants it kept."""
    return max(slot.spec.ttl_s, slot.kept_s or 0)


def _stays(slot: Slot) -> bool:
    """Whether no timer moves it, for it would only come back."""
    return slot.spec.pinned or slot.spec.is_default


def _idled(board: Board, slot: Slot, why: Why) -> Cause:
    return Cause(why, idle_s=board.now - slot.used_at)
