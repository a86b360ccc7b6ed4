"""Inference past aiohttp's server: connections of our own for as long as they ask in common form.

Parsing, objects, routing and the task of aiohttp's server are a third of what a short request
costs. What is uncommon in any way (another path, a body that is large or comes in chunks, odd or
broken heads) isn't judged here: the connection goes to aiohttp with all that was read, and stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Protocol

from aiohttp import web

from llmsnap.config.schema import Config
from llmsnap.runtime.tasks import Background
from llmsnap.web.accesslog import AccessLog
from llmsnap.web.body import HeldBody
from llmsnap.web.envelope import error_answer, failure_of
from llmsnap.web.flow import Flow
from llmsnap.web.gate import Gate
from llmsnap.web.head import CommonHead, Head, read_common
from llmsnap.web.headers import Dates, reason_phrase
from llmsnap.web.outbox import Outbox
from llmsnap.web.outlet import Outlet
from llmsnap.web.sse import Silence

logger = logging.getLogger(__name__)

MOST_BODY_BYTES: Final = 64 * 1024
_MOST_UNREAD_BYTES: Final = 128 * 1024


class Serves(Protocol):
    """The hot path, as seen from here."""

    @property
    def outbox(self) -> Outbox: ...

    async def serve(self, request: Head, body: HeldBody, outlet: Outlet) -> None: ...


@dataclass(slots=True)
class Express:
    """What is served here, and by whom."""

    paths: Collection[str]
    gate: Gate
    proxy: Serves
    most_body_bytes: int = MOST_BODY_BYTES

    def adopt(self, config: Config) -> None:
        """Go by another configuration from now on."""
        self.most_body_bytes = min(MOST_BODY_BYTES, config.max_body_bytes)


EXPRESS = web.AppKey("express", Express)


class Front(Protocol):
    """Where the connections come from."""

    @property
    def log(self) -> AccessLog | None: ...

    @property
    def background(self) -> Background: ...

    @property
    def dates(self) -> Dates: ...

    @property
    def idle_s(self) -> float: ...

    def admit(self, connection: ExpressConnection, /) -> None: ...

    def forget(self, connection: ExpressConnection, /) -> None: ...

    def to_aiohttp(self, connection: ExpressConnection, data: bytes) -> None: ...


class ExpressConnection(Flow):
    """One client's connection."""

    __slots__ = (
        "_asked",
        "_express",
        "_front",
        "_is_held_up",
        "_is_here",
        "_loop",
        "_passed",
        "_remote",
        "_request",
        "_silence",
        "_unread",
        "_work",
        "is_last",
    )

    def __init__(self, front: Front, express: Express) -> None:
        super().__init__()
        self.is_last = False
        """Whether the connection ends with the answer that is on its way."""
        self._front = front
        self._express = express
        self._loop = asyncio.get_running_loop()
        self._remote = "unknown"
        self._passed: CommonHead | None = None
        """The last head that the gate let through: mostly the next one is the same."""
        self._unread = b""
        self._is_held_up = False
        self._is_here = True
        """Whether it is neither lost nor aiohttp's."""
        self._request: tuple[CommonHead, bytes] | None = None
        """What is being served: a head and its body."""
        self._work: asyncio.Task[None] | None = None
        self._asked: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether nothing was asked on this connection that isn't answered."""
        return self._request is None and not self._unread

    def force_close(self) -> None:
        """Close once all is written that there is."""
        self._express.proxy.outbox.flush()
        self.transport.close()

    def close_if_idle(self) -> None:
        """Close unless something was asked; what is half asked is aiohttp's to wait for."""
        if self.is_waiting:
            self.force_close()
        elif self._request is None:
            self._hand_over()

    # ---- asyncio's side ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the client in."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._remote = str(peer[0] if isinstance(peer, tuple) else peer)
        self._silence = Silence(self._loop, self._front.idle_s, self._fell_silent)
        self._front.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up what the client has asked for."""
        super().connection_lost(exc)
        self._leave()

    def data_received(self, data: bytes) -> None:
        """Take in what the client asks for, or will ask for next."""
        self._unread = self._unread + data if self._unread else data
        if self._request is None:
            self._look()
        elif len(self._unread) > _MOST_UNREAD_BYTES:
            self._is_held_up = True
            self.transport.pause_reading()

    def _look(self) -> None:
        """Begin to serve what has come, once it is whole, if it is for here."""
        found = read_common(self._unread, self._remote)
        express = self._express
        if found is None or found[0].path not in express.paths:
            self._hand_over()
            return
        head, begin, end = found
        if end - begin > express.most_body_bytes:
            self._hand_over()
        elif len(self._unread) >= end:
            self._request = head, self._unread[begin:end]
            self._unread = self._unread[end:]
            self._wake()

    def _wake(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None and not asked.done():
            asked.set_result(None)
        elif self._work is None:
            self._work = self._front.background.spawn(self._serve_all(), name="express")

    def _fell_silent(self) -> None:
        if self._request is None:
            self.close_if_idle()

    def _hand_over(self) -> None:
        """Let aiohttp have the connection; it is gone from here."""
        self._express.proxy.outbox.flush()
        if self._request is None and not self.transport.is_closing():
            self._take_more()
            self._front.to_aiohttp(self, self._unread)
        self._leave()

    def _leave(self) -> None:
        self._is_here = False
        self._silence.end()
        self._front.forget(self)
        self._unread = b""
        if self._work is not None and self._work is not asyncio.current_task():
            self._work.cancel()

    # ---- serving -------------------------------------------------------------------------------

    async def _serve_all(self) -> None:
        """Serve one request after the other, as long as they come."""
        try:
            while self._request is not None:
                outlet = await self._serve(*self._request)
                self._request = None
                if self.is_last or not outlet.stays_open:
                    return
                self._silence.note()
                self._read_on()
                if self._request is None and self._is_here:
                    self._asked = self._loop.create_future()
                    await self._asked
        finally:
            if self._is_here:
                self.force_close()

    def _read_on(self) -> None:
        """Go on with what came while a request was served; take more in once that is little."""
        if self._unread:
            self._look()
        if self._request is None or len(self._unread) <= _MOST_UNREAD_BYTES:
            self._take_more()

    def _take_more(self) -> None:
        if self._is_held_up:
            self._is_held_up = False
            self.transport.resume_reading()

    async def _serve(self, head: CommonHead, text: bytes) -> Outlet:
        began = perf_counter()
        express, log = self._express, self._front.log
        outlet = Outlet(self, express.proxy.outbox, keep_alive=head.keep_alive)
        try:
            if head is not self._passed:
                express.gate.check(head)
                self._passed = head
            await express.proxy.serve(head, HeldBody.of(text), outlet)
        except Exception as error:  # the root of every request
            self._fail(head, outlet, error)
        if log is not None:
            log.note(head, outlet.status, outlet.body_bytes, perf_counter() - began)
        return outlet

    def _fail(self, head: CommonHead, outlet: Outlet, error: Exception) -> None:
        """Answer with `error`, or cut the answer that has begun."""
        failure = failure_of(head, error)
        if outlet.head_sent:
            logger.warning("%s %s: answer cut: %s", head.method, head.path, failure)
            outlet.cut()
            return
        answer = error_answer(failure, accept=head.headers.get("Accept"), path=head.path)
        outlet.open(
            (answer.status, reason_phrase(answer.status)),
            answer.lines + self._front.dates.line(),
            size=len(answer.body),
            pieces=[answer.body],
            complete=True,
        )
