"""Which saved conversation a request wants, and which slot is free for it."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llmsnap.sessions.catalogue import Saved
from llmsnap.sessions.chain import Chain
from llmsnap.sessions.slots import Slot
from llmsnap.sessions.turns import SLACK, Turn

_ARRIVAL_S: Final = 2.0
"""More time than a request takes from here into a slot that is free."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A saved conversation that a request goes on from, or begins like."""

    saved: Saved
    shared: int
    """How many marks they have in common."""
    tokens: int
    """About how many tokens that are, of what was asked."""

    @property
    def is_whole(self) -> bool:
        """Whether all that was asked in the saved one is asked again."""
        return self.shared == len(self.saved.marks)


def best_of(candidates: Iterable[Saved], chain: Chain, *, whole_only: bool = False) -> Wish | None:
    """Return what has most in common with `chain`; None: nothing has.

    Of several alike it is the one that its client calls the same, then the newest. `whole_only`:
    only what `chain` goes on from counts.
    """
    best: tuple[int, bool, float] = (0, False, 0.0)
    wish = None
    for saved in candidates:
        shared = chain.shared_with(saved.marks)
        rank = (shared, saved.session == chain.session, saved.used)
        if whole_only and shared < len(saved.marks):
            continue
        if shared and rank > best:
            best, share = rank, chain.lengths[shared - 1] / saved.length
            wish = Wish(saved, shared, round(saved.prompt_tokens * min(1.0, share)))
    return wish


def free_slot(slots: Sequence[Slot], taken: Collection[int]) -> Slot | None:
    """Return a slot that is at rest: an empty one, else the one that was used longest ago."""
    idle = [slot for slot in slots if not slot.is_processing and slot.id not in taken]
    return min(idle, key=lambda slot: (not slot.is_empty, slot.id_task, slot.id), default=None)


def is_arriving(turn: Turn, now: float) -> bool:
    """Whether `turn` may not have reached its slot yet; `now` is on the monotonic clock."""
    return turn.is_under_way and turn.record.forwarded_at > now - _ARRIVAL_S


def are_settled(slots: Sequence[Slot], under_way: Sequence[Turn], now: float) -> bool:
    """Whether no request is on its way that could still take any of `slots`."""
    busy = sum(slot.is_processing for slot in slots)
    all_there = busy >= min(len(under_way), len(slots))
    return all_there or not any(is_arriving(turn, now) for turn in under_way)


def unknown_slots(
    slots: Sequence[Slot], inherited: Mapping[int, int], ours: Container[int]
) -> list[Slot]:
    """Return those that hold what they did when they were `inherited`, and nothing of `ours`."""
    return [
        slot
        for slot in slots
        if slot.id_task == inherited.get(slot.id)
        and slot.n_prompt_tokens != 0
        and slot.id not in ours
    ]


def may_hold(slot: Slot, saved: Saved) -> bool:
    """Whether `slot`, of which nobody knows whose it is, may hold `saved` or more of it."""
    return slot.n_prompt_tokens is None or slot.n_prompt_tokens + SLACK >= saved.tokens


def may_be_left(slots: Sequence[Slot], ours: Container[int], wish: Wish) -> bool:
    """Whether a request that was cut off may have left as much of `wish` in one of `slots`.

    `ours`: the slots of which it is known what they hold.
    """
    return any(slot.id not in ours and (slot.n_prompt_tokens or 0) >= wish.tokens for slot in slots)


def fresh_turns(turns: Sequence[Turn], latest: Turn, slots: int) -> list[Turn]:
    """Return the turns that may still be what slots hold, in order, once `latest` has ended."""
    found = [turn for turn in turns if not latest.continues(turn)] + [latest]
    return sorted(found, key=lambda turn: turn.number)[-slots:]
