"""Why a request is refused: the errors of the rules, in words for the person who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import isfinite
from typing import Final

from llmsnap.config.quantities import size_text
from llmsnap.core.board import Board, Release
from llmsnap.core.lifecycle import State
from llmsnap.core.slot import Slot, Ticket
from llmsnap.errors import (
    BackingOff,
    ConcurrencyLimited,
    Conflict,
    DoesNotFit,
    LlmsnapError,
    ModelNotFound,
    ModelUnloaded,
    OutOfMemory,
    Released,
    ShuttingDown,
    StartFailed,
    UpstreamLost,
    WaitedTooLong,
)

_ONCE_MORE_S: Final = 30.0
"""When to ask again, where nobody knows how long it takes."""

_ON_ITS_WAY: Final = {
    State.STARTING: "it was still starting",
    State.WAKING: "it was still waking",
    State.SLEEPING: "it was still going to sleep",
    State.STOPPING: "its last process was still stopping",
}


def unknown_model(name: str) -> LlmsnapError:
    """The model isn't configured (R2)."""
    return ModelNotFound(f"no model {name!r} is configured; GET /v1/models lists those that are")


def over_limit(slot: Slot) -> LlmsnapError:
    """As many requests as allowed are with the model (R2)."""
    return ConcurrencyLimited(
        f"{slot.name!r} has {slot.limited} requests already, as many as its concurrencyLimit "
        "allows; try again when one of them has ended"
    )


def no_use(slot: Slot) -> LlmsnapError:
    """The model isn't there for whoever is no reason to have it there (R2)."""
    return Conflict(
        f"{slot.name!r} is {slot.state}, or about to go, and this is no reason to load or keep it"
    )


def does_not_fit(board: Board, slot: Slot) -> LlmsnapError:
    """The model can't fit, even with all but pinned models gone (R2, R6d)."""
    ledger = board.ledger
    device, lack = max(ledger.overdrawn(slot).items(), key=lambda item: (item[1], item[0]))
    capacity = ledger.capacity[device]
    needed = (slot.spec.certain if slot.need is None else slot.need)[device]
    beside = ""
    if slot.need is not None and (pins := _pins(board, slot, device)):
        beside = f" beside pinned {', '.join(pins)}"
    return DoesNotFit(
        f"{slot.name!r} needs {size_text(needed)} of {device}, where "
        f"{size_text(max(0, needed - lack))} of {size_text(capacity)} are available{beside}; "
        "give it less context or fewer layers there, or raise the device's budget"
        + (", or unpin a model" if beside else "")
    )


def out_of_memory(board: Board, slot: Slot, error: LlmsnapError) -> LlmsnapError:
    """Memory ran out while it was loaded, and once more after room was made for it (R4)."""
    beside: Counter[str] = Counter()
    for other in board.slots.values():
        if other is not slot and other.is_on_devices and other.share is not None:
            beside.update(other.share.bytes)
    is_known = slot.share is not None and not slot.share.alone
    unknown = "what it needs isn't known"
    books = ""
    for device, booked in sorted(slot.booked.items()):
        left = size_text(max(0, board.ledger.room[device] - beside[device]))
        thought = f"{size_text(booked)} was thought to do" if is_known else unknown
        books += f"; {left} of {device} was there, {thought}"
    return OutOfMemory(
        f"{slot.name!r} ran out of memory while it was loaded, and again after room was made{books}"
        f"; give it less context or fewer layers. {error}"
    )


def backing_off(slot: Slot, now: float) -> LlmsnapError:
    """The last starts failed, and the next one isn't due yet (R2, R4)."""
    wait_s = slot.retry_at - now
    return BackingOff(
        f"{slot.name!r} failed to start {slot.fails} times in a row and is tried again in "
        f"{wait_s:.0f} s; the last time: {slot.error or 'it ended without a word'}",
        retry_after_s=wait_s,
    )


def start_failed(slot: Slot) -> LlmsnapError:
    """The process ended before it was ready, and nobody said why."""
    return StartFailed(f"{slot.name!r} ended before it was ready; see its log")


def lost(slot: Slot) -> LlmsnapError:
    """The process ended with requests on it, and nobody said why."""
    return UpstreamLost(f"the process of {slot.name!r} ended; send the request again")


def unloaded(name: str) -> LlmsnapError:
    """An administrator unloaded the model."""
    return ModelUnloaded(f"{name!r} was unloaded by an administrator; send the request again")


def shutting_down(name: str) -> LlmsnapError:
    """The proxy is on its way down (R15)."""
    return ShuttingDown(f"llmsnap is shutting down, {name!r} takes no more requests")


def not_woken(name: str) -> LlmsnapError:
    """The proxy is on its way down, and a paused model didn't get its memory back (R15)."""
    return UpstreamLost(f"llmsnap is shutting down, and {name!r} couldn't be woken in time")


def waited_too_long(board: Board, ticket: Ticket, closed: Collection[Slot]) -> LlmsnapError:
    """The ticket waited `maxWait` (R5b)."""
    return WaitedTooLong(
        f"{ticket.slot.name!r} wasn't available within {board.max_wait_s:g} s (schedule.maxWait): "
        + "; ".join(_in_the_way(board, ticket.slot, closed))
    )


def released(board: Board, held: Release, slot: Slot) -> LlmsnapError:
    """All memory is wanted for something else (R17)."""
    left_s = held.until - board.now
    when = f"for {left_s:.0f} s more" if isfinite(left_s) else "until somebody resumes"
    return Released(
        f"{slot.name!r} can't be loaded: all memory is given back {when} (llmsnap resume)",
        retry_after_s=left_s if isfinite(left_s) else _ONCE_MORE_S,
    )


def _pins(board: Board, slot: Slot, device: str) -> list[str]:
    return [
        f"{other.name!r} ({size_text(other.need[device])})"
        for other in board.pinned
        if other is not slot and other.need is not None and other.need.get(device)
    ]


def _in_the_way(board: Board, slot: Slot, closed: Collection[Slot]) -> list[str]:
    """Say what keeps `slot` from taking a request now."""
    if slot.state in _ON_ITS_WAY:
        return [_ON_ITS_WAY[slot.state]]
    if slot.unload_at is not None:
        return ["it was being unloaded"]
    if slot in closed:
        return ["it had to make room for a model that was asked for earlier"]
    devices = board.ledger.share_of(slot).bytes
    up = [other for other in board.slots.values() if other is not slot and other.is_on_devices]
    excluded = board.constraints.forced_out(slot.name, [other.name for other in up])
    reasons = [
        f"{other.name!r} {_doing(other)}"
        for other in up
        if other.name in excluded
        or (other.share is not None and not devices.keys().isdisjoint(other.share.bytes))
    ]
    reasons += [
        f"other programs use {size_text(used)} of {device}"
        for device, used in board.ledger.foreign.items()
        if used and device in devices
    ]
    return reasons or ["models that were asked for earlier came first"]


def _doing(slot: Slot) -> str:
    if slot.spec.pinned:
        return "is pinned"
    if slot.state is State.READY:
        count = len(slot.serving)
        return f"was serving {count} request{'s' * (count != 1)}" if count else "was kept awake"
    return f"was {slot.state}"
