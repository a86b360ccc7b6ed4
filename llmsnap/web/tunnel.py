"""Bytes both ways once an upstream has switched protocols, as for WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from llmsnap.errors import LlmsnapError
from llmsnap.web.frames import GOING_AWAY, Frames
from llmsnap.web.headers import Answer
from llmsnap.web.outlet import Outlet


class Tunnel(asyncio.Protocol):
    """Joins the client's connection and an upstream's, whose protocol's place it takes.

    `divert` has it get what the client sends, by `feed_data` and `feed_eof`.
    """

    def __init__(
        self, outlet: Outlet, upstream: asyncio.Transport, divert: Callable[[Tunnel], None]
    ) -> None:
        self._client = outlet.transport
        self._divert = divert
        self._outlet = outlet
        self._upstream = upstream
        self._news = asyncio.Event()
        self._is_over = False
        self._frames: Frames | None = None
        """Those that the upstream sends, if it speaks WebSocket."""
        self._hangs_up = False

    async def run(self, answer: Answer, tail: bytes, lines: bytes) -> None:
        """Pass the switch on to the client, then bytes both ways; return when either side ends.

        `tail` came behind `answer`; `lines` are headers of our own.
        """
        switch = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % answer.upgrade
        self._upstream.set_protocol(self)
        if answer.upgrade.lower() == b"websocket":
            self._frames = Frames()
            self._frames.take(tail)
        try:
            self._outlet.switch((answer.status, answer.reason), answer.lines + switch + lines, tail)
            self._divert(self)
            self._upstream.resume_reading()
            while not self._is_over:
                await self._news.wait()
                self._news.clear()
                if self._outlet.is_blocked and not self._is_over:
                    await self._outlet.drain()
                    self._upstream.resume_reading()
        finally:
            self._upstream.close()
            self._outlet.end_connection()

    def fail(self, error: LlmsnapError) -> None:
        """End both connections; there is no form to say why."""
        self._end()

    def hang_up(self) -> None:
        """Tell a WebSocket's client that we go away, as soon as no frame is cut by that.

        Other protocols have no form for it, and end with their answers.
        """
        self._hangs_up = True
        if self._frames is not None and self._frames.is_between:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if not self._is_over and not self._client.is_closing():
            self._client.write(GOING_AWAY)
        self._end()

    # ---- the client's bytes --------------------------------------------------------------------

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Pass on what the client sent."""
        if not self._upstream.is_closing():
            self._upstream.write(data)
        return False, b""

    def feed_eof(self) -> None:
        """Learn that the client is gone."""
        self._end()

    def pause_writing(self) -> None:
        """Have the client wait: the upstream takes less than it sends."""
        if not self._client.is_closing():
            self._client.pause_reading()

    def resume_writing(self) -> None:
        """Let the client go on."""
        if not self._client.is_closing():
            self._client.resume_reading()

    # ---- the upstream's bytes ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Pass on what the upstream sent."""
        if self._client.is_closing() or self._is_over:
            return
        whole = len(data) if self._frames is None else self._frames.take(data)
        if self._hangs_up and self._frames is not None and whole:
            self._client.write(data[:whole])
            self._say_goodbye()
            return
        self._client.write(data)
        if self._outlet.is_blocked:
            self._upstream.pause_reading()
            self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Learn that the upstream is gone."""
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._news.set()
