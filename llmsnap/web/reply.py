"""One answer on its way from an upstream connection to a client: its pace, its limits, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from llmsnap.errors import BadGateway, LlmsnapError, UpstreamLost
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.tokens import END_BYTES, Excerpt
from llmsnap.web.delivery import Delivery
from llmsnap.web.headers import Answer, timings
from llmsnap.web.patience import Patience
from llmsnap.web.upstream import UpstreamConnection

PACE_S: Final = 0.001
"""Short pieces of a stream that follow each other faster are read that much later, together."""
_WORTHWHILE_BYTES: Final = 400
"""A read of two events or more pays for itself: to wait for more would only be to wait."""


class Broken(Exception):
    """The connection ended before the first byte of an answer."""


class Reply:
    """Hands on what an upstream sends; `settled` returns when that is done.

    The upstream's protocol calls it in the middle of its parsing, so that no task has to run for a
    chunk. The task that waits is woken at the end, and when the client takes less than comes.
    """

    switched: tuple[UpstreamConnection, Answer, bytes] | None = None
    """Set when the upstream switches protocols: where, its answer, and what came behind it."""
    may_switch = False
    """Whether the client asked for a switch of protocols."""
    _connection: UpstreamConnection | None = None
    _news: asyncio.Future[None] | None = None
    _failure: Exception | None = None
    _is_over = False
    _is_held_up = False
    _has_begun = False
    _is_stream = False
    _received_at = 0.0
    patience: Patience | None = None
    """With the server; None: there is no limit."""

    def __init__(
        self,
        record: RequestRecord,
        delivery: Delivery,
        loop: asyncio.AbstractEventLoop,
        *,
        reads_tokens: bool = False,
    ) -> None:
        self._record = record
        self._model = record.model
        self._delivery = delivery
        self._loop = loop
        self._reads_tokens = reads_tokens

    # ---- for whoever asks the upstream ---------------------------------------------------------

    def limit_header(self, limit_s: float, late: Callable[[], LlmsnapError]) -> None:
        """Fail with `late()` unless the answer begins within `limit_s`."""
        self._limits().limit_header(limit_s, lambda: self.fail(late()))

    def limit_silence(self, limit_s: float, broken: Callable[[], None]) -> None:
        """Call `broken` whenever the upstream was silent for `limit_s`."""
        self._limits().limit_silence(limit_s, broken)

    def _limits(self) -> Patience:
        if self.patience is None:
            self.patience = Patience(self._loop)
        return self.patience

    def attach(self, connection: UpstreamConnection, *, is_head: bool) -> bool:
        """Take the next answer of `connection` in; False when it is over already."""
        if isinstance(self._failure, Broken):
            self._is_over, self._failure = False, None
        if not self._is_over:
            self._connection = connection
            connection.begin(self, is_head=is_head)
        return not self._is_over

    async def settled(self) -> None:
        """Return when the client was sent all there is, or the upstream switches protocols.

        Raises LlmsnapError while the client has heard nothing, and Broken when another connection
        may be tried.
        """
        while not self._is_over:
            self._news = self._loop.create_future()
            await self._news
            if self._is_held_up:
                await self._delivery.outlet.drain()
                self._is_held_up = False
                if self.patience is not None:
                    self.patience.resume()
                self._read_on()
        if self._failure is not None:
            raise self._failure

    def fail(self, error: LlmsnapError) -> None:
        """End with `error`, in the form that is still possible."""
        if self._is_over and not isinstance(self._failure, Broken):
            return
        if self._delivery.has_begun:
            self._failure = None
            self._record.error = error.message
            self._delivery.fail(error)
        else:
            self._failure = error
        self._delivery.close()
        self._end()

    def close(self) -> None:
        """Let go of everything, of an upstream that still answers too."""
        self._end()
        self._delivery.close()
        if self.patience is not None:
            self.patience.end()

    # ---- the upstream's news -------------------------------------------------------------------

    def receive(self, answer: Answer | None, pieces: list[bytes], complete: bool) -> None:
        """Hand on what came."""
        if complete:
            self._connection = None  # it is free for others already
        if self.patience is not None:
            self.patience.heard()
        if answer is not None:
            self._has_begun = True
            if self.patience is not None:
                self.patience.begun()
            self._is_stream = answer.is_event_stream
            timing = self._begin(answer, pieces if complete else [])
            self._record.feed(pieces)
            self._delivery.begin(answer, timing, pieces, complete)
        else:
            self._record.feed(pieces)
            self._delivery.more(pieces, complete)
        if complete or self._delivery.outlet.is_whole:
            self._end()
        elif self._delivery.outlet.is_blocked:
            self._hold_up()
        elif self._is_stream and sum(map(len, pieces)) < _WORTHWHILE_BYTES:
            self._pace()

    def _begin(self, answer: Answer, whole: list[bytes]) -> bytes:
        """Put the answer's beginning down; return the value of `Server-Timing`.

        `whole` is the body, if that is all of it.
        """
        record = self._record
        excerpt: Excerpt | bytes | None = None
        if self._reads_tokens:
            if len(whole) == 1 and len(whole[0]) <= END_BYTES and not answer.is_encoded:
                excerpt = whole[0]
            else:
                excerpt = Excerpt(is_encoded=answer.is_encoded)
        record.content_type = answer.content_type
        if record.capture is not None:
            record.capture.begin(answer.lines)
        record.begin(answer.status, is_stream=answer.is_event_stream, excerpt=excerpt)
        return timings(record.phases, record.prefill_s, record.paused_before_s)

    def upgraded(self, answer: Answer, tail: bytes) -> None:
        """Leave the connection to whoever waits."""
        connection, self._connection = self._connection, None
        assert connection is not None
        if not self.may_switch:
            connection.abandon()
            self.fail(BadGateway(f"model {self._model!r} switches protocols unasked"))
            return
        connection.transport.pause_reading()
        self.switched = (connection, answer, tail)
        self._end()

    def lost(self, reason: str) -> None:
        """Learn that the upstream is gone."""
        self._connection = None
        if self._has_begun:
            self.fail(UpstreamLost(f"model {self._model!r} broke its answer off: {reason}"))
        else:
            self._failure = Broken(reason)
            self._end()

    # ---- pace and end --------------------------------------------------------------------------

    def _hold_up(self) -> None:
        """Have the upstream wait until the client has taken what it was sent."""
        if self._connection is not None and self._connection.is_open and not self._is_held_up:
            self._connection.transport.pause_reading()
            self._is_held_up = True
            if self.patience is not None:
                self.patience.suspend()
            self._wake()

    def _pace(self) -> None:
        """Let a stream that is faster than any eye gather in its socket for a moment.

        To be told of a few bytes, and to pass them on, costs more than to pass on many.
        """
        now = self._loop.time()
        if now - self._received_at < PACE_S and self._connection is not None:
            self._connection.transport.pause_reading()
            self._loop.call_later(PACE_S, self._read_on)
        self._received_at = now

    def _read_on(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.transport.resume_reading()

    def _end(self) -> None:
        self._is_over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()
        if self.patience is not None and not isinstance(self._failure, Broken):
            self.patience.end()
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)
