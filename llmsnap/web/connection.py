"""One client's connection: its limits, and what it hears of requests that aren't HTTP.

aiohttp's protocol has no limit on the whole of a request's head, tells of malformed requests in a
form of its own, and would take any number of connections that never ask for anything.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from llmsnap.errors import BadRequest, HeadersTooLarge, LlmsnapError
from llmsnap.runtime.tasks import Background
from llmsnap.web.accesslog import AccessLog
from llmsnap.web.address import BACKLOG
from llmsnap.web.envelope import error_answer, error_response
from llmsnap.web.express import EXPRESS, Express, ExpressConnection
from llmsnap.web.headers import Dates

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 100
MAX_CONNECTIONS: Final = 8192
IDLE_S: Final = 75.0
"""How long a connection may take to ask for something, first or again.

Longer than nginx's 60 s, so that a proxy in front of us never asks while we are closing.
"""

_LINGER_S: Final = 2.0


class Connection(web.RequestHandler):
    """aiohttp's server protocol with our limits and our errors."""

    __slots__ = ("_head_bytes", "_listener", "_refused")

    def __init__(self, listener: Listener, server: web.Server, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._listener = listener
        self._head_bytes = 0
        self._refused = False

    @property
    def is_waiting(self) -> bool:
        """Whether no request of this connection is being served."""
        return self._waiter is not None and not self._waiter.done()

    def close_if_idle(self) -> None:
        """Close unless something was asked."""
        if self.is_waiting:
            self.force_close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the client in, if need be in the place of one that doesn't ask for anything."""
        super().connection_made(transport)
        self._listener.admit(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the client."""
        self._listener.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Hand `data` to the parser, unless a head grows beyond what any client needs."""
        if self._refused:
            return
        if self.is_waiting:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and b"\r\n\r\n" not in data[:MAX_HEAD_BYTES]:
                self._refuse_head()
                return
        super().data_received(data)
        if not self.is_waiting:
            self._head_bytes = 0

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what isn't HTTP; for a broken connection there is nobody to answer."""
        if isinstance(exc, ConnectionError):
            raise exc
        error: LlmsnapError
        if status == 400:
            error = malformed(exc, message or "")
            logger.info("%s sent what isn't HTTP: %s", request.remote, error)
        else:
            error = LlmsnapError("internal error; the log says more")
            logger.error("%s %s failed", request.method, request.path, exc_info=exc)
        response = error_response(error, accept=request.headers.get("Accept", ""))
        response.force_close()
        return response

    def _refuse_head(self) -> None:
        """Answer, and take in what still comes, so that the client gets to read the answer."""
        error = _head_too_large()
        logger.info("%s: %s", self.peername, error)
        answer, transport = error_answer(error), self.transport
        if transport is None:
            return
        transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n"
            b"%bContent-Length: %d\r\n\r\n%b" % (answer.lines, len(answer.body), answer.body)
        )
        if transport.can_write_eof():
            transport.write_eof()
        self._refused = True
        asyncio.get_running_loop().call_later(_LINGER_S, self.force_close)


AnyConnection = Connection | ExpressConnection


class Listener:
    """Makes the connections of one server and keeps their number in bounds.

    `server` is aiohttp's, out of a runner that is set up; without `express` it gets all.
    """

    def __init__(
        self,
        server: web.Server,
        express: Express | None = None,
        *,
        log: AccessLog | None = None,
        limit: int | None = None,
    ) -> None:
        self.log = log
        self.idle_s = IDLE_S
        self.dates = Dates(asyncio.get_running_loop().time)
        self.background = Background()
        self._server = server
        self._express = express
        self._options = connection_options(log)
        self._limit = connection_limit() if limit is None else limit
        self._open: dict[AnyConnection, None] = {}

    def __call__(self) -> AnyConnection:
        """Make the protocol of one connection; this is what asyncio's servers call."""
        if self._express is not None:
            return ExpressConnection(self, self._express)
        return Connection(self, self._server, **self._options)

    def to_aiohttp(self, connection: ExpressConnection, data: bytes) -> None:
        """Let aiohttp take over a connection on which it finds `data`."""
        transport = connection.transport
        successor = Connection(self, self._server, **self._options)
        transport.set_protocol(successor)
        self.forget(connection)
        successor.connection_made(transport)
        if connection.is_paused:
            successor.pause_writing()
        successor.data_received(data)

    @property
    def connections(self) -> Collection[AnyConnection]:
        """The open ones, in the order in which they came."""
        return self._open.keys()

    def admit(self, connection: AnyConnection) -> None:
        """Note an open connection; over the limit, the longest idle one makes room.

        When none is idle it is the new one that goes.
        """
        self._open[connection] = None
        if len(self._open) > self._limit:
            idle = next((other for other in self._open if other.is_waiting), connection)
            idle.force_close()
            self.forget(idle)

    def close_idle(self) -> None:
        """Close the connections on which nothing is asked."""
        for connection in list(self._open):
            connection.close_if_idle()

    def forget(self, connection: AnyConnection) -> None:
        """Note that a connection is gone."""
        self._open.pop(connection, None)

    async def finish(self, within_s: float) -> None:
        """End the connections that aren't aiohttp's, after their answers or then."""
        express = [each for each in self._open if isinstance(each, ExpressConnection)]
        for connection in express:
            connection.is_last = True
            connection.close_if_idle()
        await self.background.settle(within_s)
        for connection in express:
            connection.force_close()
        await self.background.aclose()


@asynccontextmanager
async def listening(
    app: web.Application,
    sockets: Sequence[socket.socket],
    *,
    tls: ssl.SSLContext | None = None,
    log: AccessLog | None = None,
    closing_s: float = 5.0,
) -> AsyncIterator[Callable[[], None]]:
    """Serve `app` on `sockets` inside the block; then let answers end for `closing_s`.

    Yields what stops taking new connections, for calling before the block ends.
    """
    loop = asyncio.get_running_loop()
    # handler_cancellation: a client that leaves must free its place; aiohttp's default is to go on.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=closing_s)
    await runner.setup()
    assert runner.server is not None
    listener = Listener(runner.server, app.get(EXPRESS), log=log)
    servers = [
        await loop.create_server(listener, sock=sock, ssl=tls, backlog=BACKLOG) for sock in sockets
    ]

    def stop_accepting() -> None:
        for server in servers:
            server.close()
        listener.close_idle()

    try:
        yield stop_accepting
    finally:
        stop_accepting()
        await asyncio.gather(listener.finish(closing_s), runner.cleanup())


def connection_options(log: AccessLog | None) -> Mapping[str, Any]:
    """Return aiohttp's settings for each connection."""
    return {
        "access_log": log and log.logger,
        "access_log_class": lambda *_: log,  # one for all
        "keepalive_timeout": IDLE_S,
        "max_line_size": MAX_HEAD_BYTES,
        "max_field_size": MAX_HEAD_BYTES,
        "max_headers": MAX_HEADERS,
        "auto_decompress": False,  # bodies go on to the upstream as they came
    }


def connection_limit() -> int:
    """Return how many connections the open files allow: each may need a second one upstream."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(MAX_CONNECTIONS, (files - 128) // 2))


def malformed(exc: BaseException | None, message: str) -> LlmsnapError:
    """Return what to tell a client whose request couldn't be parsed."""
    if isinstance(exc, LineTooLong) or "too many headers" in message.lower():
        return _head_too_large()
    said = (message or str(exc or "")).strip().partition("\n")[0].rstrip(": ")
    return BadRequest(f"this isn't valid HTTP: {said or 'it can not be parsed'}")


def _head_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"the request's head is too large: at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers"
    )
