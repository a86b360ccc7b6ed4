"""The writing side of a connection: when the other side takes less than it is sent."""

from __future__ import annotations

import asyncio
from typing import cast


class Flow(asyncio.Protocol):
    """A protocol of which a writer can wait until most of what it wrote was taken."""

    __slots__ = ("_drained", "is_paused", "transport")

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.is_paused = False
        """Whether the other side takes less than it is sent."""
        self._drained: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """Let a writer that waits go on: there is nobody to wait for."""
        self.resume_writing()

    def pause_writing(self) -> None:
        """Note that writers should wait."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """Let the writer go on."""
        self.is_paused = False
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    async def drain(self) -> None:
        """Wait until the other side has taken most of what it was sent, or is gone."""
        if self.is_paused and not self.transport.is_closing():
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
