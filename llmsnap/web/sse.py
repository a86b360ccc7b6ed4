"""Event streams: comments in silences, errors as events (WHATWG HTML 9.2), streams of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Collection
from typing import Final

import msgspec
from aiohttp import web

from llmsnap.errors import LlmsnapError
from llmsnap.web.envelope import ANTHROPIC_PATHS, error_body

PING: Final = b": ping\n\n"
PING_S: Final = 10.0
"""After so much silence a comment tells client and proxies that somebody is still there."""

_UNBUFFERED: Final = b"X-Accel-Buffering: no\r\n"
_UNCACHED: Final = b"Cache-Control: no-cache\r\n"
EARLY_HEAD: Final = b"Content-Type: text/event-stream\r\n" + _UNBUFFERED + _UNCACHED
"""The head of a stream that begins before its upstream has answered."""

_OURS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",
}
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_END: Final = 4


class Silence:
    """Calls `broken` once nothing was noted for `after_s`, and again as long as that goes on.

    While it `is_held` it calls nobody; who lets go of it notes something.
    """

    __slots__ = ("_after_s", "_broken", "_loop", "_noted_at", "_timer", "is_held")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, after_s: float, broken: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._after_s = after_s
        self._broken = broken
        self.is_held = False
        self._noted_at = loop.time()
        self._timer = loop.call_later(after_s, self._ring)

    def note(self) -> None:
        """Begin anew: there was something."""
        self._noted_at = self._loop.time()

    def end(self) -> None:
        """Call nobody any more."""
        self._timer.cancel()

    def _ring(self) -> None:
        # One timer a stream, however many chunks it has: it looks again when it rings early.
        due = self._noted_at + self._after_s
        if due <= self._loop.time():
            self.note()
            due = self._noted_at + self._after_s
            self._timer = self._loop.call_at(due, self._ring)
            if not self.is_held:
                self._broken()
        else:
            self._timer = self._loop.call_at(due, self._ring)


class EventEnds:
    """Whether the stream stands between two events."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def follow(self, sent: list[bytes]) -> None:
        """Note what was sent."""
        if sent and len(sent[-1]) >= _LONGEST_END:
            self._tail = sent[-1][-_LONGEST_END:]
        else:
            self._tail = b"".join((self._tail, *sent))[-_LONGEST_END:]

    @property
    def between(self) -> bool:
        """Whether something may be put in here."""
        return not self._tail or self._tail.endswith(_EVENT_ENDS)


def head_lines(present: Collection[bytes]) -> bytes:
    """Return the headers that keep proxies in front from holding a stream back.

    Those that are `present` (lower case) are left as they are.
    """
    unbuffered = b"" if b"x-accel-buffering" in present else _UNBUFFERED
    return unbuffered if b"cache-control" in present else unbuffered + _UNCACHED


def comment(text: bytes) -> bytes:
    """Return a comment, which clients skip."""
    return b": %b\n\n" % text


def error_event(error: LlmsnapError, path: str) -> bytes:
    """Return the last event of a stream that fails after its header."""
    return event(msgspec.json.encode(error_body(error, path)), path)


def foreign_error_event(body: bytes, path: str) -> bytes | None:
    """Return an upstream's own error object as an event; None when `body` is none."""
    try:
        compact = msgspec.json.format(body, indent=-1)
        error = msgspec.json.decode(compact)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not (isinstance(error, dict) and error.get("error")):
        return None
    return event(compact, path)


def event(data: bytes, path: str) -> bytes:
    """Return one line of JSON as an event; Anthropic's clients want errors named."""
    name = b"event: error\n" if path.startswith(ANTHROPIC_PATHS) else b""
    return b"%bdata: %b\n\n" % (name, data)


async def send_events(
    request: web.Request, events: AsyncIterable[bytes], *, hello: bytes = b""
) -> web.StreamResponse:
    """Answer with `events` as they come, until they end or the client leaves.

    Without a `hello` the header waits for the first of them.
    """
    response = web.StreamResponse(headers=_OURS)
    await response.prepare(request)
    if hello:
        await response.write(hello)
    async for event in events:
        await response.write(event)
    await response.write_eof()
    return response


def event_head() -> web.StreamResponse:
    """Return what such an answer begins with, for HEAD."""
    return web.StreamResponse(headers=_OURS)
