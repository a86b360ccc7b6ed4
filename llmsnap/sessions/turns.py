"""Requests, as far as they say what a server's slots hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from llmsnap.sessions.catalogue import Saved
from llmsnap.sessions.chain import Chain, chain_of
from llmsnap.sessions.slots import Slot

_LONG_BYTES: Final = 256 * 1024
"""More is hashed in a thread."""
SLACK: Final = 2
"""By how many tokens a slot may differ from what the answer tells: the last one may be missing."""
_BEGINNING: Final = 0.9
_OVERTAKING_S: Final = 1.0
"""Of two requests that were sent within this time, the second may have been the server's first."""


class Told(Protocol):
    """What an answer said of its tokens."""

    @property
    def prompt(self) -> int | None: ...

    @property
    def cached(self) -> int | None: ...

    @property
    def generated(self) -> int | None: ...

    @property
    def computed(self) -> int | None: ...

    @property
    def prompt_s(self) -> float | None: ...


class Answered(Protocol):
    """The record of a request; its tokens are known some time after its end."""

    @property
    def status(self) -> int: ...

    @property
    def error(self) -> str: ...

    @property
    def tokens(self) -> Told | None: ...

    @property
    def forwarded_at(self) -> float: ...

    @property
    def ended_at(self) -> float: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Turn:
    """One request of a conversation."""

    record: Answered
    path: str
    body: bytes
    scope: str = ""
    """Whose it is: a hash of the API key."""
    session: str = ""
    """What a header calls the conversation."""
    number: int = 0
    """Its place in the order in which the requests began."""
    restored: Restore | None = None
    """What was put into a slot for it."""
    is_placed: bool = False
    """Whether it can't but go to that slot."""
    is_alone: bool = True
    """Whether no other request was served meanwhile, which might have taken its slot."""
    is_saved: bool = False
    is_off: bool = False
    """Whether its process is going, so that it isn't worth waiting for a slot."""
    glimpse: Sequence[Slot] = ()
    """The slots as it saw them last while it waited."""
    waited_s: float = 0.0
    """How long it had to wait for a slot."""
    _chain: Chain | None = None
    _is_read: bool = False

    @property
    def is_under_way(self) -> bool:
        """Whether the server has it, or soon will, and it hasn't ended."""
        return bool(self.record.forwarded_at) and not self.record.ended_at

    @property
    def held(self) -> int:
        """How many tokens its slot holds after it; 0: it isn't said."""
        tokens = self.record.tokens
        if tokens is None or not tokens.prompt:
            return 0
        return tokens.prompt + max(0, (tokens.generated or 0) - 1)

    @property
    def is_whole(self) -> bool:
        """Whether it was answered to its end, so that it's known what its slot holds."""
        return self.record.status == 200 and not self.record.error and self.held > 0

    def continues(self, earlier: Turn) -> bool:
        """Whether this is plainly the same conversation: nearly all of it is as it was.

        Costs one comparison of bytes; False may be wrong.
        """
        start = int(len(earlier.body) * _BEGINNING)
        return (
            self.scope == earlier.scope
            and self.path == earlier.path
            and self.body.startswith(earlier.body[:start])
        )

    def is_twin_of(self, other: Turn) -> bool:
        """Whether it can't be told which of the two left a slot with so many tokens."""
        if self is other or abs(self.held - other.held) > SLACK:
            return False
        first, second = sorted((self.record, other.record), key=lambda one: one.forwarded_at)
        apart_s = second.forwarded_at - first.forwarded_at
        return apart_s < _OVERTAKING_S and second.forwarded_at < first.ended_at

    async def chain(self) -> Chain | None:
        """Return what it is known by; None: it is no conversation."""
        if not self._is_read:
            if len(self.body) > _LONG_BYTES:
                found = await asyncio.to_thread(chain_of, self.path, self.body, self.session)
            else:
                found = chain_of(self.path, self.body, self.session)
            self._chain, self._is_read = found, True
        return self._chain


@dataclass(frozen=True, slots=True)
class Restore:
    """A saved conversation that was put into a slot."""

    saved: Saved
    slot: int
    expected: int
    """How many tokens should now be found in the cache."""
    is_whole: bool
    """Whether the request goes on where the saved one ended, so that all of it should be."""


def likely_tokens(turns: Iterable[Turn], ended: Iterable[Turn]) -> int:
    """Return how many tokens `turns` ask together, going by those that have `ended`.

    A token is a byte at least.
    """
    shares = [turn.held / len(turn.body) for turn in ended if turn.body]
    return round(sum(len(turn.body) for turn in turns) * min(1.0, max(shares, default=1.0)))


def holders(turns: Sequence[Turn], slots: Iterable[Slot]) -> dict[int, Turn]:
    """Return which of `turns`, in the order in which they began, each slot holds, by its id.

    A slot is known by how many tokens it holds, and by the order of the requests. It isn't in there
    when no turn would leave it so: then somebody else's request is in it, or half an answer; nor
    when it can't be told which of two turns it is.
    """
    left, found = list(turns), {}
    for slot in sorted(slots, key=lambda slot: slot.id_task, reverse=True):
        turn = next((turn for turn in reversed(left) if _may_be_in(turn, slot)), None)
        if turn is not None:
            left.remove(turn)
            found[slot.id] = turn
    return {id_: turn for id_, turn in found.items() if not any(map(turn.is_twin_of, turns))}


def _may_be_in(turn: Turn, slot: Slot) -> bool:
    if slot.is_processing or slot.id_task < 0 or not turn.held:
        return False
    return slot.n_prompt_tokens is None or abs(turn.held - slot.n_prompt_tokens) <= SLACK
