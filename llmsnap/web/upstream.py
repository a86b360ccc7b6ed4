"""One HTTP/1.1 connection to a model's server, on asyncio's protocol and httptools.

aiohttp's client is most of what a relayed request costs, so the hot path has its own: what arrives
in one go is parsed in one go, and handed on in one call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import httptools

from llmsnap.web.flow import Flow
from llmsnap.web.headers import Answer, read_answer

logger = logging.getLogger(__name__)

MOST_BARREN_BYTES: Final = 2**20
"""Of headers or framing in a row, without a byte of a body: more is a server gone wild."""


class Sink(Protocol):
    """Who takes an answer in."""

    def receive(self, answer: Answer | None, pieces: list[bytes], complete: bool) -> None:
        """Take what came: the head (once), pieces of the body, and whether that was all."""

    def upgraded(self, answer: Answer, tail: bytes) -> None:
        """Take the transport over: the server switches protocols; `tail` came with its answer."""

    def lost(self, reason: str) -> None:
        """Learn that nothing more will come, and why."""


class UpstreamConnection(Flow):
    """Carries one request at a time.

    `released(self, reusable)` is called when an answer is whole, before its sink learns of that.
    """

    __slots__ = (
        "_answer",
        "_barren_bytes",
        "_complete",
        "_headers",
        "_is_head",
        "_is_interim",
        "_keep_alive",
        "_parser",
        "_pieces",
        "_reason",
        "_released",
        "_sending",
        "_sink",
        "_until_close",
        "idle_since",
    )

    def __init__(self, released: Callable[[UpstreamConnection, bool], None]) -> None:
        super().__init__()
        self.idle_since: float | None = None
        """Since when it waits for another request, on the pool's clock; None: never used yet."""
        self._released = released
        self._parser = httptools.HttpResponseParser(self)
        self._sink: Sink | None = None
        self._is_head = False
        self._sending = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._answer: Answer | None = None
        self._pieces: list[bytes] = []
        self._barren_bytes = 0
        """Received since there was last an answer's head or a piece of its body."""
        self._is_interim = False
        self._keep_alive = False
        self._until_close = False
        self._complete = False

    @property
    def is_open(self) -> bool:
        """Whether it can still be written to."""
        return not self.transport.is_closing()

    # ---- sending -------------------------------------------------------------------------------

    def begin(self, sink: Sink, *, is_head: bool) -> None:
        """Have the next answer go to `sink`; `is_head`: it answers HEAD, and has no body."""
        self._sink = sink
        self._is_head = is_head
        self._sending = True

    def sent(self) -> None:
        """Note that the request is whole."""
        self._sending = False

    def abandon(self) -> None:
        """Close at once; whoever waited for the answer isn't told."""
        self._sink = None
        self.transport.abort()

    # ---- asyncio's side ------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits; for an answer without a length this is the end it was to have."""
        super().connection_lost(exc)
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if self._until_close and exc is None:
            sink.receive(None, [], True)
        else:
            sink.lost(str(exc) if exc else "it closed the connection")

    def data_received(self, data: bytes) -> None:
        """Parse what came and hand it on."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            if not self._complete:
                self._fail(f"what it sent isn't HTTP: {error.__context__ or error}")
                return
            self._keep_alive = False  # what comes behind a whole answer is nobody's
        sink = self._sink
        if sink is None:  # nobody asked for this, so nothing on this connection can be trusted
            self.transport.abort()
            return
        answer, self._answer = self._answer, None
        pieces, complete = self._pieces, self._complete
        if pieces:
            self._pieces = []
        elif answer is None and not complete:
            self._barren_bytes += len(data)
            if self._barren_bytes > MOST_BARREN_BYTES:
                self._fail(f"it sent {self._barren_bytes >> 10} KiB of headers or framing in a row")
            return
        self._barren_bytes = 0
        if complete:
            self._release()
        try:
            sink.receive(answer, pieces, complete)
        except Exception:  # the root of all that a server's bytes set off
            logger.exception("what a model's server sent can't be delivered")
            self.transport.abort()
            sink.lost("internal error; the log says more")

    # ---- httptools' side -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Make room for an answer's head."""
        self._headers = []
        if self._complete:  # one more than was asked for
            self._keep_alive = False

    def on_status(self, reason: bytes) -> None:
        """Take the words behind the status."""
        self._reason = reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; behind the head these are trailers, which nobody reads."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Read the head."""
        parser = self._parser
        status = parser.get_status_code()
        self._is_interim = status < 200 and not parser.should_upgrade()
        if self._is_interim or self._complete:
            return
        answer = read_answer(
            status, self._reason, self._headers, keep_alive=parser.should_keep_alive()
        )
        self._answer = answer
        has_body = not (self._is_head or status in (204, 304))
        self._until_close = has_body and answer.length is None and not answer.is_chunked
        # The parser doesn't know of HEAD and would wait for a body.
        self._keep_alive = answer.keep_alive and not self._is_head
        self._complete = self._is_head

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if not self._complete:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Note the end, unless it is one of `100 Continue` and its like."""
        self._complete = self._complete or not self._is_interim

    # ---- ends ----------------------------------------------------------------------------------

    def _release(self) -> None:
        self._sink = None
        self._complete = False
        self._released(self, self._keep_alive and not self._sending)

    def _switch(self, tail: bytes) -> None:
        sink, self._sink = self._sink, None
        answer, self._answer = self._answer, None
        if sink is None or answer is None:
            self.transport.abort()
            return
        sink.upgraded(answer, tail)

    def _fail(self, reason: str) -> None:
        sink, self._sink = self._sink, None
        self.transport.abort()
        if sink is not None:
            sink.lost(reason)
