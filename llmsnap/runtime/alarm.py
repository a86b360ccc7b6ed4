"""A bell that rings at the scheduler's deadline, whatever that is by then."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Calls `ring` when the `deadline` has come, on the clock of the loop that it is built within.

    A deadline that moves away costs nothing: the bell rings in vain inside, and is set anew.
    """

    def __init__(self, deadline: Callable[[], float], ring: Callable[[], None]) -> None:
        self._deadline = deadline
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf

    def arm(self) -> None:
        """Take in that the deadline may be another now."""
        deadline = self._deadline()
        if deadline < self._at:
            self.cancel()
            self._timer = self._loop.call_at(deadline, self._call)
            self._at = deadline

    def cancel(self) -> None:
        """Ring no more, until it is armed again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at = None, math.inf

    def _call(self) -> None:
        self._timer, self._at = None, math.inf
        if self._deadline() <= self._loop.time():
            self._ring()
        else:
            self.arm()
