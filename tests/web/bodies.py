"""Request bodies as the server's parser feeds them."""

from __future__ import annotations

import asyncio
from typing import cast

from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader

from llmsnap.web.body import HeldBody


class Tap:
    """A client's connection of which only the flow control matters."""

    connected = True

    def __init__(self) -> None:
        self.paused = False

    def pause_reading(self) -> None:
        """Note that the client has to wait."""
        self.paused = True

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Note that it may go on."""
        self.paused = False


def reader(*pieces: bytes, eof: bool = True, tap: Tap | None = None) -> StreamReader:
    """Return a body of which these pieces have come."""
    protocol = cast(BaseProtocol, tap or Tap())
    content = StreamReader(protocol, 2**16, loop=asyncio.get_running_loop())
    for piece in pieces:
        content.feed_data(piece)
    if eof:
        content.feed_eof()
    return content


def held(
    *pieces: bytes, eof: bool = True, max_bytes: int = 2**30, declared: int | None = None
) -> HeldBody:
    """Return a body of which nothing is held yet."""
    return HeldBody(reader(*pieces, eof=eof), max_bytes=max_bytes, declared=declared)
