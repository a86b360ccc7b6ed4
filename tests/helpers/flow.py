"""Somebody who stops reading, and what that does to whoever sends to him."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast


def hold(writer: asyncio.StreamWriter) -> None:
    """Take nothing more in on the connection of `writer`."""
    _transport(writer).pause_reading()


def go_on(writer: asyncio.StreamWriter) -> None:
    """Take in again."""
    _transport(writer).resume_reading()


async def stands_still(count: Callable[[], int], *, for_s: float = 0.1) -> int:
    """Return `count()` once it hasn't changed for that long."""
    before, now = -1, count()
    while now != before:
        await asyncio.sleep(for_s)
        before, now = now, count()
    return now


def _transport(writer: asyncio.StreamWriter) -> asyncio.ReadTransport:
    return cast(asyncio.ReadTransport, writer.transport)  # a socket's goes both ways
