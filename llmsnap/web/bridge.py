"""Answers that go past aiohttp's own responses, to clients whose connections are aiohttp's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import cast

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import WebSocketReader

from llmsnap.web.outbox import Outbox
from llmsnap.web.outlet import Outlet
from llmsnap.web.tunnel import Tunnel


class AiohttpClient:
    """The connection of one of aiohttp's requests."""

    def __init__(self, request: web.BaseRequest) -> None:
        assert request.transport is not None
        self.transport: asyncio.Transport = request.transport
        self._request = request

    @property
    def is_paused(self) -> bool:
        """Whether the client takes less than it is sent."""
        return self._request.protocol.writing_paused

    async def drain(self) -> None:
        """Wait until the client has taken most of what it was sent, or is gone."""
        try:
            await self._request.writer.drain()
        except ConnectionError:
            return


class Relayed(web.StreamResponse):
    """An answer that aiohttp takes for one that is already sent."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__()
        self._outlet = outlet

    @property
    def prepared(self) -> bool:
        """Whether the head is sent."""
        return self._outlet.head_sent

    @property
    def status(self) -> int:
        """The status that was sent."""
        return self._outlet.status

    @property
    def body_length(self) -> int:
        """How many bytes of the body the client was sent."""
        return self._outlet.body_bytes

    @property
    def keep_alive(self) -> bool:
        """Whether the client's connection may serve another request."""
        return self._outlet.stays_open

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Do nothing: the head went straight to the transport."""

    async def write_eof(self, data: bytes = b"") -> None:
        """See to it that all is written: aiohttp may close the connection next."""
        self._outlet.flush()


def outlet_for(request: web.BaseRequest, outbox: Outbox) -> Outlet:
    """Return where to write the answer to `request`."""
    modern = request.version >= HttpVersion11
    return Outlet(
        AiohttpClient(request),
        outbox,
        keep_alive=modern and request.keep_alive,
        chunks_allowed=modern,
    )


async def relayed(
    request: web.BaseRequest, outlet: Outlet, work: Awaitable[None]
) -> web.StreamResponse:
    """Return the answer that `work` writes to `outlet`, as aiohttp wants it."""
    try:
        await work
    finally:
        # aiohttp and the middlewares look here for whether an answer has begun.
        request.writer.output_size += outlet.head_sent
    return Relayed(outlet)


def divert(request: web.BaseRequest, tunnel: Tunnel) -> None:
    """Have `tunnel` get whatever the client sends from now on, instead of aiohttp's parser."""
    request.protocol.set_parser(cast(WebSocketReader, tunnel))
