"""Who comes next: requests whose conversations may have to be put into a slot first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from llmsnap.sessions.turns import Turn


class NotYet(Exception):
    """No slot can be had now; a look after `look_s` may tell otherwise, news before that."""

    def __init__(self, look_s: float) -> None:
        super().__init__(f"not before {look_s:g} s")
        self.look_s = look_s


class NoRoom(NotYet):
    """There is a slot, but no room in the cache that all share: others may go on meanwhile."""


class Line:
    """Lets one turn after the other choose its slot, in the order in which they came.

    So nobody overtakes the first one, which may wait for a slot.
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._is_first = asyncio.Lock()
        self._stirred = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self._turns

    @asynccontextmanager
    async def first(self, turn: Turn) -> AsyncIterator[None]:
        """Wait until all who came before are gone; `turn` is first until the block ends."""
        self._turns.append(turn)
        try:
            async with self._is_first:
                yield
        finally:
            self._turns.remove(turn)

    def stir(self) -> None:
        """Have the first one look again."""
        self._stirred.set()

    def settle(self) -> None:
        """Be about to look: what stirs from now on is news."""
        self._stirred.clear()

    async def news(self, within_s: float) -> None:
        """Wait until something has stirred, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._stirred.wait()
