"""What is asked of a model's server: a request's head and body, as they go there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final

from aiohttp import hdrs

from llmsnap.runtime.upstream import Upstream
from llmsnap.web.body import HeldBody, unmap
from llmsnap.web.edits import Segment
from llmsnap.web.head import Head
from llmsnap.web.headers import CHUNKED, content_length, request_head
from llmsnap.web.patience import Patience
from llmsnap.web.peering import peer_headers
from llmsnap.web.upstream import UpstreamConnection

_SLICE_BYTES: Final = 2**20
_SHORT_BYTES: Final = 64 * 1024
_BODILESS: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS, hdrs.METH_DELETE})
_ENCODINGS: Final = frozenset({b"accept-encoding"})
_PLAIN: Final = b"Accept-Encoding: identity\r\n"


@dataclass(slots=True)
class Payload:
    """A body: what is held of it, and what is still to come from the client."""

    segments: list[Segment] = field(default_factory=list)
    size: int | None = 0
    """Of the whole; None: not known."""
    rest: HeldBody | None = None
    """What else there is to send; None: nothing, so that the body can be sent twice."""

    @property
    def is_short(self) -> bool:
        """Whether it goes out in one write."""
        return self.rest is None and (self.size or 0) <= _SHORT_BYTES


@dataclass(slots=True)
class Order:
    """One request for a model's server."""

    request: Head
    target: bytes
    """Path and query, raw, without the server's base path."""
    payload: Payload
    hidden: frozenset[bytes] = frozenset()
    """Headers that hold the client's key for the proxy and don't go there, in lower case."""
    more: bytes = b""
    """Further headers, whole lines."""
    wants_plain: bool = False
    """Whether the answer is to be readable: not compressed."""
    is_helper: bool | None = None
    """Whether it puts nobody out who is in use; None: as the model's `class` says."""
    is_use: bool = True
    """Whether it is a reason to have its model up, and to keep it."""
    via: bytes = b""
    """What it adds to `Via` on its way to a peer; empty: it goes to a server of ours."""

    def head(self, upstream: Upstream) -> bytes:
        """Return the head for `upstream`; its own key takes the place of ours."""
        request, payload = self.request, self.payload
        if payload.size is None:
            framing = CHUNKED
        elif payload.size or request.method not in _BODILESS:
            framing = content_length(payload.size)
        else:
            framing = b""
        headers, peer = request.raw_headers, (request.remote or "unknown").encode()
        if self.via:
            headers, more = peer_headers(headers, upstream, self.via)
            framing, peer = framing + more, b""
        elif hdrs.HOST not in request.headers:  # HTTP/1.0
            framing += b"Host: localhost\r\n"
        if self.hidden and upstream.key and not self.via:
            framing += b"Authorization: Bearer %b\r\n" % upstream.key.encode()
        return request_head(
            request.method,
            upstream.base_path.encode() + self.target if upstream.base_path else self.target,
            headers,
            framing=framing,
            peer=peer,
            hidden=self.hidden | _ENCODINGS if self.wants_plain else self.hidden,
            more=self.more + _PLAIN if self.wants_plain else self.more,
        )

    async def send(
        self, connection: UpstreamConnection, head: bytes, patience: Patience | None = None
    ) -> None:
        """Send head and body as fast as the server takes them, while it is there.

        `patience` with the server is suspended while the client is waited for. Raises BodyTooLarge
        and BadRequest out of what is still to come.
        """
        connection.transport.write(head)
        parts = self._parts()
        while (part := await _next(parts, patience)) is not None:
            await connection.drain()
            if not connection.is_open:
                return
            connection.transport.write(part)
        connection.sent()

    async def _parts(self) -> AsyncIterator[Segment]:
        """Yield the body, framed, in parts of moderate size."""
        in_chunks = self.payload.size is None
        for segment in self.payload.segments:
            for at in range(0, len(segment), _SLICE_BYTES):
                part = segment[at : at + _SLICE_BYTES]
                yield _chunk(part) if in_chunks else part
                unmap(segment)
        if self.payload.rest is not None:
            async for piece in self.payload.rest.rest():
                yield _chunk(piece) if in_chunks else piece
        if in_chunks:
            yield b"0\r\n\r\n"


async def _next(parts: AsyncIterator[Segment], patience: Patience | None) -> Segment | None:
    with patience.clients_turn() if patience else nullcontext():
        return await anext(parts, None)


def _chunk(part: Segment) -> bytes:
    return b"".join((b"%x\r\n" % len(part), part, b"\r\n"))


def upgrade_lines(request: Head) -> bytes:
    """Return the headers that ask the server for the switch the client asks for; or nothing."""
    protocol = request.headers.get(hdrs.UPGRADE, "")
    if not protocol or "upgrade" not in request.headers.get(hdrs.CONNECTION, "").lower():
        return b""
    return f"Connection: Upgrade\r\nUpgrade: {protocol}\r\n".encode()
