"""What must hold after every event. Tests check it all the time; nothing else needs it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from llmsnap.core.board import Board
from llmsnap.core.lifecycle import State
from llmsnap.core.slot import Call, Slot, Ticket


def check(board: Board) -> None:
    """Raise AssertionError when the board contradicts itself."""
    _check_places(board)
    _check_devices(board)
    _check_tiers(board)
    for slot in board.slots.values():
        _check_slot(board, slot)
    assert board.alarm > board.now, "an alarm in the past would ring for ever"


def _check_places(board: Board) -> None:
    """Each ticket is in exactly one place, and the queue is in order."""
    for number, ticket in board.tickets.items():
        waits, served = ticket.seq in board.queue, number in ticket.slot.serving
        assert waits is not served, f"ticket {number} is in the queue: {waits}, served: {served}"
    for older, younger in pairwise(board.queue.values()):
        assert (older.since, older.seq) < (younger.since, younger.seq), "queue out of order"
    waiting = Counter(e.slot for e in board.queue.values() if isinstance(e, Ticket))
    present = Counter(ticket.slot for ticket in board.tickets.values())
    limited = Counter(ticket.slot for ticket in board.tickets.values() if ticket.limited)
    for slot in board.slots.values():
        assert slot.waiting == waiting[slot]
        assert slot.waiting + len(slot.serving) == present[slot]
        assert slot.onlookers == sum(not ticket.is_use for ticket in slot.serving.values())
        assert slot.limited == limited[slot]
    assert not (board.is_shutting_down and waiting), "a ticket waits for ever"


def _check_devices(board: Board) -> None:
    """No device is over its capacity, but for needs that grew after the load."""
    for device, capacity in board.ledger.capacity.items():
        taken, alone = 0, []
        for slot in board.slots.values():
            if not slot.is_on_devices:
                continue
            assert slot.share is not None
            if slot.share.alone:
                alone.append(slot)
            else:
                taken += slot.booked.get(device, 0)
        assert taken <= capacity, f"{device} holds {taken} of {capacity} bytes"
        for slot in alone:
            assert slot.share is not None
            if device in slot.share.bytes and not slot.spec.pinned:
                _check_alone(board, slot, device)


def _check_alone(board: Board, slot: Slot, device: str) -> None:
    """A model whose size isn't known has nobody beside it but pinned models, and who is let be."""
    for other in board.slots.values():
        if other is slot or other.name in slot.let_be:
            continue
        if other.is_on_devices and not other.spec.pinned:
            assert other.share is not None
            assert device not in other.share.bytes, f"{other.name} is beside {slot.name}"


def _check_tiers(board: Board) -> None:
    """No tier is over its budget."""
    for tier, budget in board.ledger.tiers.items():
        most = max(budget, board.ledger.outgrown.get(tier, 0))
        assert board.ledger.tier_held(tier) <= most, f"{tier} is full"


def _check_slot(board: Board, slot: Slot) -> None:
    """A model's own facts agree."""
    if slot.state in (State.STOPPED, State.FAILED, State.STARTING, State.STOPPING):
        assert not slot.serving, f"{slot.name} serves although it is {slot.state}"
    if slot.is_paused:
        assert slot.call is not None, f"{slot.name}: paused without its call"
    elif not slot.spec.pinned:
        assert slot.call is None, f"{slot.name} calls for itself"
    assert slot.state is not State.PAGING or slot.bound_for[0], f"{slot.name} is paged nowhere"
    if slot.call is not None:
        assert isinstance(board.queue.get(slot.call.seq), Call)
    if slot.is_outdated:
        assert slot in board.outdated
        assert slot.state is not State.READY or slot in board.unloading
    if slot in board.unloading:
        assert slot.state is State.READY
        assert slot.unload_at is not None
    if slot.unload_at is not None:
        assert slot in board.unloading or slot.state is State.STOPPING
