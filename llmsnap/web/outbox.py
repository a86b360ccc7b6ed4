"""Writes of one turn of the event loop, made together at its end.

A process that is woken for one write has often gone to sleep again by the next one, and waking is
most of what a short write costs. Whoever is woken for many finds them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

Part = bytes | memoryview


class Outbox:
    """Keeps what is to be written until the loop has heard all who have something to say.

    Whoever writes to a transport directly as well must `flush` first.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.turn = 0
        """How often it was flushed."""
        self._waiting: list[tuple[asyncio.Transport, Sequence[Part]]] = []

    def write(self, transport: asyncio.Transport, parts: Sequence[Part]) -> None:
        """Write `parts` as one, before anything that the loop is asked for from now on."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append((transport, parts))

    def flush(self) -> None:
        """Write everything now, but for what those who have left were to get."""
        self.turn += 1
        waiting, self._waiting = self._waiting, []
        for transport, parts in waiting:
            if transport.is_closing():
                continue
            # Not `writelines`: in several versions of Python it forgets to slow the writer down
            # (CVE-2024-12254).
            transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
