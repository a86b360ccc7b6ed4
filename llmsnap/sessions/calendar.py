"""The time by which what is saved grows old: no clock that is set makes it jump."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Final

_WITH_SUSPENDS: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_s() -> float:
    """Return the seconds since some moment, those of suspends with them where that can be told."""
    return time.clock_gettime(_WITH_SUSPENDS)


class Calendar:
    """Counts Unix seconds as they pass, whatever becomes of the wall clock.

    What passes in one go counts up to `most_s`: the machine was off, or suspended, or its clock is
    wrong, and nobody can say which.
    """

    def __init__(
        self,
        wall: Callable[[], float],
        elapsed: Callable[[], float] = elapsed_s,
        *,
        most_s: float = inf,
    ) -> None:
        self.wall = wall
        self.most_s = most_s
        self.is_taken_up = False
        """Whether it goes on from where an earlier proxy has counted to."""
        self._elapsed = elapsed
        self._read_at = elapsed()
        self._now = wall()

    def __call__(self) -> float:
        """Return the moment that it has counted to."""
        read_at = self._elapsed()
        self._now += self._counts(read_at - self._read_at)
        self._read_at = read_at
        return self._now

    def take_up(self, wall: float, counted: float) -> None:
        """Go on from `counted`, which another proxy had reached when the clock said `wall`."""
        self._now = counted + self._counts(self.wall() - wall)
        self._read_at = self._elapsed()
        self.is_taken_up = True

    def on_the_wall(self, moment: float) -> float:
        """Return what the wall clock would have said at `moment`, if it goes right now."""
        return moment + self.wall() - self()

    def _counts(self, seconds: float) -> float:
        return min(max(seconds, 0.0), self.most_s)
