"""R5 (its end), R12, R15: what is asked for: unload, sleep, to be kept, the end of everything."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from llmsnap.core import reasons
from llmsnap.core.board import Board
from llmsnap.core.cause import ASKED, DEAF, RECONFIGURED, Cause, Why
from llmsnap.core.dispatch import may_load_now
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import (
    KeepRequested,
    ShutdownRequested,
    SleepRequested,
    UnloadRequested,
)
from llmsnap.core.slot import DOWN, SLUMBER, Slot, Ticket
from llmsnap.errors import LlmsnapError

_SHUTDOWN: Final = Cause(Why.SHUTDOWN)


def unload(board: Board, event: UnloadRequested) -> None:
    """Refuse all who wait for the model, and stop it; running answers may go on for some time.

    Paused answers end at once. Tickets that come later wait for the exit and start it afresh.
    """
    slot = board.slots.get(event.model)
    if slot is None:
        return
    board.reject_waiting(slot, reasons.unloaded(slot.name))
    slot.dismissed = True
    if slot.state in DOWN:
        board.drop_call(slot)
        return
    deadline = board.now + event.timeout_s
    slot.unload_at = min(deadline, deadline if slot.unload_at is None else slot.unload_at)
    if slot.state is State.READY:
        if slot not in board.unloading:
            board.unloading.append(slot)
    elif slot.state is not State.STOPPING:
        board.end(slot, reasons.unloaded, ASKED)


def end_unloads(board: Board) -> None:
    """Stop the models that are being unloaded and are idle, or whose time is up."""
    for slot in list(board.unloading):
        assert slot.unload_at is not None
        if not slot.serving or board.due(slot.unload_at):
            board.end(slot, reasons.unloaded, _why_unloaded(slot))


def _why_unloaded(slot: Slot) -> Cause:
    if slot.unload_at is not None and slot.unload_at < inf:
        return ASKED
    return DEAF if slot.is_deaf else RECONFIGURED


def sleep(board: Board, event: SleepRequested) -> None:
    """Note that an idle model should sleep; ignored for one that is busy, wanted, or can't."""
    slot = board.slots.get(event.model)
    if slot is None or slot.state is not State.READY or not slot.spec.can_sleep:
        return
    if not slot.serving and not slot.waiting:
        slot.asked_to_sleep = True
        slot.dismissed = slot.spec.is_default
        if slot not in board.timed:
            board.timed.append(slot)


def keep(board: Board, event: KeepRequested) -> None:
    """Note how long a model is to be kept; ignored while others use it or wait for it."""
    slot = board.slots.get(event.model)
    if slot is None or slot.serving or slot.waiting:
        return
    slot.kept_s = event.keep_s
    if slot not in board.timed:
        board.timed.append(slot)


def shut_down(board: Board, event: ShutdownRequested) -> None:
    """Refuse all who wait; running answers may go on for the grace time, which only shrinks."""
    board.staying = event.staying
    board.shutdown_at = min(board.shutdown_at, board.now + event.grace_s)
    for entry in list(board.queue.values()):
        if isinstance(entry, Ticket):
            board.reject(entry, reasons.shutting_down(entry.slot.name))


def is_handed_over(board: Board, slot: Slot) -> bool:
    """Whether the process of `slot` can be left as it is now."""
    if slot.name not in board.staying or slot.serving or slot in board.unloading:
        return False
    return slot.state in (State.READY, State.ASLEEP)


def wind_down(board: Board) -> None:
    """Stop what is idle, wake what is paused, and end what is left when the grace is over (R15)."""
    for slot in board.slots.values():
        if slot.state in DOWN or slot.state is State.STOPPING or _may_stay(board, slot):
            continue
        if not slot.serving or board.due(board.shutdown_at):
            board.end(slot, _last_word(slot), _SHUTDOWN)
    for entry in list(board.queue.values()):
        slot = entry.slot
        if slot.state in SLUMBER:
            share = board.ledger.share_of(slot)
            if may_load_now(board, slot, share):
                board.load(slot, share, _SHUTDOWN)


def _may_stay(board: Board, slot: Slot) -> bool:
    """Whether `slot` is handed over, or may still come to where it can be; end its last answers."""
    if slot.name not in board.staying or slot.state is State.STARTING:
        return False
    is_over = board.due(board.shutdown_at)
    if slot.state in (State.READY, State.ASLEEP):
        if is_over:
            board.abort_serving(slot, reasons.shutting_down(slot.name))
            board.drop_call(slot)
        return True
    return not is_over


def _last_word(slot: Slot) -> Callable[[str], LlmsnapError]:
    return reasons.not_woken if slot.is_paused else reasons.shutting_down
