"""What happens, told to whoever follows: nobody is waited for, nobody's memory grows."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from msgspec import json

logger = logging.getLogger(__name__)

_MOST_WAITING: Final = 1024
"""Messages for one follower; newer ones are dropped, as in llama-swap."""
_MOST_BYTES: Final = 4 * 2**20
"""The same: a message may hold 64 KiB of a log, which is more once it is JSON."""


def frame(kind: str, data: object) -> bytes:
    """Return an event as llama-swap's clients expect it: JSON with JSON as a text in it."""
    text = json.encode({"type": kind, "data": json.encode(data).decode()})
    return b"event:message\ndata:%b\n\n" % text


class Events:
    """Hands events to all who follow."""

    def __init__(self) -> None:
        self._followers: set[Follower] = set()

    @property
    def is_followed(self) -> bool:
        """Whether anybody would hear of an event."""
        return bool(self._followers)

    def publish(self, kind: str, data: Callable[[], object]) -> None:
        """Tell of an event; `data` is asked for only when somebody follows."""
        if self._followers:
            message = frame(kind, data())
            for follower in self._followers:
                follower.put(message)

    def follow(self) -> Follower:
        """Return an iterator over what is told from now on; close it when done."""
        follower = Follower(self._followers.discard)
        self._followers.add(follower)
        return follower


class Follower:
    """An async iterator of what is to be sent to one client, several messages at a time.

    Nothing for `quiet_s` seconds: a comment, by which it shows whether the client is still there.
    """

    def __init__(self, on_close: Callable[[Follower], None], *, quiet_s: float = 15.0) -> None:
        self._on_close = on_close
        self._quiet_s = quiet_s
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._closed = False
        self._news = asyncio.Event()

    def put(self, message: bytes) -> None:
        """Add a message, or drop it when too many are waiting."""
        if len(self._waiting) < _MOST_WAITING and self._waiting_bytes < _MOST_BYTES:
            self._waiting.append(message)
            self._waiting_bytes += len(message)
            self._news.set()
            return
        self._dropped += 1
        if self._dropped == 1:
            logger.warning("a client of an event stream is too slow; it misses events")

    def close(self) -> None:
        """End the iteration, after what is still waiting."""
        self._closed = True
        self._news.set()
        self._on_close(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._news.clear()
            try:
                async with asyncio.timeout(self._quiet_s):
                    await self._news.wait()
            except TimeoutError:
                return b": still here\n\n"
        messages = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = self._dropped = 0
        return messages
