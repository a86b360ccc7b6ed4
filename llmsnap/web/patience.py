"""How long a server may take over a request, counted while it is its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llmsnap.web.sse import Silence


class Patience:
    """Limits of what an upstream may take; not of what its client takes to send or to read.

    Without it a client that is slow would look like a server that hangs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._others_turns = 0
        """For how many reasons it isn't the upstream's turn."""
        self._header_s = 0.0
        self._late: Callable[[], None] | None = None
        self._header: asyncio.TimerHandle | None = None
        self._silence: Silence | None = None

    def limit_header(self, limit_s: float, late: Callable[[], None]) -> None:
        """Call `late` unless `begun` within `limit_s`."""
        self._header_s, self._late = limit_s, late
        self._arm()

    def limit_silence(self, limit_s: float, broken: Callable[[], None]) -> None:
        """Call `broken` whenever nothing was `heard` for `limit_s`."""
        self._silence = Silence(self._loop, limit_s, broken)

    def heard(self) -> None:
        """Note that something came."""
        if self._silence is not None:
            self._silence.note()

    def begun(self) -> None:
        """Note that the head of the answer came."""
        self._late = None
        self._disarm()

    def suspend(self) -> None:
        """Count no more until as many calls of `resume`: it is the client's turn."""
        self._others_turns += 1
        self._disarm()
        if self._silence is not None:
            self._silence.is_held = True

    @property
    def is_suspended(self) -> bool:
        """Whether it is the client's turn."""
        return self._others_turns > 0

    def resume(self) -> None:
        """Count from now on."""
        self._others_turns -= 1
        if not self.is_suspended:
            self._arm()
            if self._silence is not None:
                self._silence.is_held = False
                self._silence.note()

    @contextmanager
    def clients_turn(self) -> Iterator[None]:
        """Suspend it within the block."""
        self.suspend()
        try:
            yield
        finally:
            self.resume()

    def end(self) -> None:
        """Call nobody any more."""
        self.begun()
        if self._silence is not None:
            self._silence.end()

    def _arm(self) -> None:
        if self._late is not None:
            self._disarm()
            self._header = self._loop.call_later(self._header_s, self._late)

    def _disarm(self) -> None:
        if self._header is not None:
            self._header.cancel()
