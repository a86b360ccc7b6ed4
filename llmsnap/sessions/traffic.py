"""The requests of one process that aren't over, or have ended just now."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

from llmsnap.sessions.choice import is_arriving
from llmsnap.sessions.turns import Turn


class Traffic:
    """Knows them in the order in which they began, and for which of them a slot was filled."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, Turn] = {}
        self._filled: list[Turn] = []

    @property
    def is_serving(self) -> bool:
        """Whether a request isn't over, so that a slot may change any time."""
        return any(not turn.record.ended_at for turn in self._open.values())

    @property
    def is_expected(self) -> bool:
        """Whether a request may not have reached the slot that was filled for it."""
        now = asyncio.get_running_loop().time()
        return any(is_arriving(turn, now) for turn in self._filled)

    def under_way(self) -> list[Turn]:
        """Return those that the server has, or is about to get."""
        return [turn for turn in self._open.values() if turn.is_under_way]

    def ended(self) -> Iterator[Turn]:
        """Yield those that the server has had, and whose tokens nobody knows yet, latest first."""
        records = ((turn, turn.record) for turn in reversed(self._open.values()))
        return (turn for turn, record in records if record.ended_at and record.forwarded_at)

    def filled(self) -> dict[int, int]:
        """Return how many tokens were restored for requests that aren't over, by slot."""
        return {t.restored.slot: t.restored.saved.tokens for t in self._filled if t.restored}

    def begin(self, turn: Turn) -> None:
        """Take in that `turn` is here."""
        turn.number = next(self._numbers)
        self._open[id(turn.record)] = turn

    def fill(self, turn: Turn) -> None:
        """Take in that a slot was filled for `turn`."""
        turn.is_alone = not self.under_way()
        self._filled.append(turn)

    def go(self, turn: Turn) -> None:
        """Take in that `turn` goes to the server."""
        for other in self._filled:
            if other is not turn:
                other.is_alone = False  # it may lose its slot to this one

    def end(self, record: object) -> Turn | None:
        """Take in that a request has ended whose tokens are known; return its turn."""
        turn = self._open.pop(id(record), None)
        if turn in self._filled:
            self._filled.remove(turn)
        return turn

    def forget(self) -> None:
        """Take in that no slot holds what was put there."""
        self._filled.clear()
