"""What fits, what is short, which models would make room: pure functions of plain values.

Nothing here knows states, queues or time; the scheduler says who counts and in which order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """What one model takes, or would take, of its devices while it is awake."""

    model: str
    bytes: Mapping[str, int]
    """Bytes a device; every device of the model is named."""
    alone: bool = False
    """Its size isn't known: it shares its devices with pinned models only."""
    pinned: bool = False


def shortage(
    wanted: Share,
    staying: Iterable[Share],
    claims: Mapping[str, int],
    room: Mapping[str, int],
) -> dict[str, int]:
    """Return the bytes a device that are missing for `wanted` if only `staying` stays.

    This looks at the future: what is on its way out isn't in `staying`. `claims` is kept for those
    who came first; `room` is what a device offers to all our models together.
    """
    staying = list(staying)
    short = {}
    for device, need in wanted.bytes.items():
        beside = [share for share in staying if device in share.bytes]
        missing = sum(share.bytes[device] for share in beside if _at_odds(wanted, share))
        claimed = claims.get(device, 0)
        if wanted.alone:
            missing += claimed
        else:
            taken = sum(share.bytes[device] for share in beside)
            missing = max(missing, need + claimed + taken - room[device])
        if missing > 0:
            short[device] = missing
    return short


def fits(wanted: Share, held: Iterable[Share], room: Mapping[str, int]) -> bool:
    """Whether `wanted` can be loaded now, beside everything that is still held.

    A model whose size isn't known fits where nothing is held but what is pinned.
    """
    held = list(held)
    for device, need in wanted.bytes.items():
        beside = [share for share in held if device in share.bytes]
        if any(_at_odds(wanted, share) for share in beside):
            return False
        taken = sum(share.bytes[device] for share in beside)
        if not wanted.alone and need > room[device] - taken:
            return False
    return True


def pick_victims(ranked: Sequence[Share], short: Mapping[str, int]) -> list[Share] | None:
    """Return a set out of `ranked` (cheapest first) that covers `short`, with nobody to spare.

    Grows from the cheapest, then drops from the dearest down whoever isn't needed. None means that
    all of them together would not be enough.
    """
    chosen: list[Share] = []
    for share in ranked:
        if covers(chosen, short):
            break
        chosen.append(share)
    if not covers(chosen, short):
        return None
    for share in reversed(chosen.copy()):
        others = [other for other in chosen if other is not share]
        if covers(others, short):
            chosen = others
    return chosen


def covers(victims: Collection[Share], short: Mapping[str, int]) -> bool:
    """Whether `victims` free at least `short` on every device."""
    return all(
        sum(share.bytes.get(device, 0) for share in victims) >= missing
        for device, missing in short.items()
    )


def _at_odds(one: Share, other: Share) -> bool:
    """Whether one of them wants the device for itself; that never keeps a pinned model out."""
    return (one.alone and not other.pinned) or (other.alone and not one.pinned)
