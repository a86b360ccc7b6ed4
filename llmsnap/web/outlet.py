"""The client's side of an answer: bytes that go straight into its transport.

aiohttp's own responses cost several calls and an await a chunk; here the upstream's protocol writes
for the client in the call in which it parses.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, Protocol

from llmsnap.web.headers import CHUNKED, content_length
from llmsnap.web.outbox import Outbox

_LAST_CHUNK: Final = b"0\r\n\r\n"


class Client(Protocol):
    """The connection that an answer goes to."""

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def is_paused(self) -> bool: ...

    async def drain(self) -> None: ...


class Outlet:
    """An answer to one request.

    Nothing may be raised once `head_sent`: only the body or the connection's end can tell of an
    error then.
    """

    head_sent = False
    is_whole = False
    """Whether the client was sent all there is for it."""
    status = 0
    """The one that was sent; 0: none yet."""
    body_bytes = 0
    """How many of the body the client was sent."""
    _written_in = -1
    """The turn of the outbox in which it wrote last."""
    _in_chunks = False
    _is_framed = True

    def __init__(
        self, client: Client, outbox: Outbox, *, keep_alive: bool, chunks_allowed: bool = True
    ) -> None:
        self.transport = client.transport
        self.stays_open = keep_alive
        """Whether the client's connection may serve another request."""
        self._client = client
        self._outbox = outbox
        self._chunks_allowed = chunks_allowed

    @property
    def is_open(self) -> bool:
        """Whether the client is still there."""
        return not self.transport.is_closing()

    @property
    def is_blocked(self) -> bool:
        """Whether the client takes less than it is sent."""
        return self._client.is_paused and self.is_open

    async def drain(self) -> None:
        """Wait until the client has taken most of what it was sent, or is gone."""
        await self._client.drain()

    def open(
        self,
        status: tuple[int, bytes],
        lines: bytes,
        *,
        size: int | None,
        has_body: bool = True,
        pieces: list[bytes],
        complete: bool,
    ) -> None:
        """Send the head, and in the same go what there is of the body.

        `size` frames the body; None: it isn't known.
        """
        self.status = status[0]
        framing = b""
        if size is not None:
            framing = content_length(size)
        elif has_body and self._chunks_allowed:
            framing = CHUNKED
            self._in_chunks = True
        elif has_body:  # HTTP/1.0: the end of the connection is the end of the body
            self.stays_open = self._is_framed = False
        if not self.stays_open:
            framing += b"Connection: close\r\n"
        head = b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (*status, lines, framing)
        self.head_sent = True
        self.is_whole = complete
        self.body_bytes = sum(map(len, pieces))
        self._write([head, *self._framed(pieces, complete)])

    def switch(self, status: tuple[int, bytes], lines: bytes, tail: bytes) -> None:
        """Send the head of a switch of protocols, and what comes behind it."""
        self.status = status[0]
        self.head_sent = self.is_whole = True
        head = b"HTTP/1.1 %d %b\r\n%b\r\n" % (*status, lines)
        self._write([head, tail])
        self.flush()

    def send(self, pieces: list[bytes], complete: bool) -> None:
        """Send more of the body; `complete`: that was all. Nothing follows that."""
        if not self.is_whole:
            self.is_whole = complete
            self.body_bytes += sum(map(len, pieces))
            self._write(self._framed(pieces, complete))

    def flush(self) -> None:
        """Write what waits for the end of the loop's turn now: someone else may write next."""
        if self._written_in == self._outbox.turn:
            self._outbox.flush()

    def end_connection(self) -> None:
        """Have the connection end with this answer."""
        self.stays_open = False

    def cut(self) -> None:
        """End the connection so that the client sees that something is missing."""
        self.stays_open = False
        self.flush()
        if self._is_framed:
            self.transport.close()
            return
        # The end of the connection would be the end of the body: only a reset tells them apart.
        if (sock := self.transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _framed(self, pieces: list[bytes], complete: bool) -> list[bytes]:
        if not self._in_chunks:
            return pieces
        if size := sum(map(len, pieces)):
            pieces = [b"%x\r\n" % size, *pieces, b"\r\n"]
        return [*pieces, _LAST_CHUNK] if complete else pieces

    def _write(self, parts: list[bytes]) -> None:
        """Write `parts` as one, for as long as the client is there."""
        if parts and not self.transport.is_closing():
            self._outbox.write(self.transport, parts)
            self._written_in = self._outbox.turn
