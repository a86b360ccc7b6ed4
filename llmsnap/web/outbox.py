"""Writes of one turn of the event loop, made together at its end.

A process that is woken for one write has often gone to sleep again by the next one, and waking is
most of what a short write costs. Whoever is woken for many finds them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

Part = bytes | memoryview

_MOST_BYTES: Final = 64 * 1024
"""More isn't kept back: a transport tells of a slow reader only when it is written to.

In one turn uvloop reads up to 8 MB of one connection.
"""


class Outbox:
    """Keeps what is to be written until the loop has heard all who have something to say.

    Whoever writes to a transport directly as well must `flush` first.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.turn = 0
        """How often it was flushed."""
        self._waiting: list[tuple[asyncio.Transport, Sequence[Part]]] = []
        self._bytes = 0

    def write(self, transport: asyncio.Transport, parts: Sequence[Part]) -> None:
        """Write `parts` as one, before anything that the loop is asked for from now on."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append((transport, parts))
        self._bytes += sum(map(len, parts))
        if self._bytes > _MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write everything now, but for what those who have left were to get."""
        self.turn += 1
        waiting, self._waiting = self._waiting, []
        self._bytes = 0
        for transport, parts in waiting:
            if transport.is_closing():
                continue
            # Not `writelines`: in several versions of Python it forgets to slow the writer down
            # (CVE-2024-12254).
            transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
