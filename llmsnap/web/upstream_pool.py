"""Connections that are kept for the next request, one pool for each process of a model."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

from llmsnap.config.sections import Timeouts
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView
from llmsnap.errors import BadGateway, GatewayTimeout, UpstreamRefused
from llmsnap.runtime.upstream import Upstream
from llmsnap.web.upstream import UpstreamConnection

IDLE_S: Final = 4.0
"""Less than the 5 s after which llama-server closes a connection that it was told to keep."""
BRIEF_IDLE_S: Final = 0.02
"""The same without TLS, where a new connection costs next to nothing.

llama-server gives each connection a thread until it ends, and has few (five with `-np 1`): one that
is only kept would keep others waiting.
"""

_LOOPBACK: Final = ("127.0.0.1", "::1")


class Pool:
    """The connections to one generation of a model."""

    def __init__(self, upstream: Upstream, timeouts: Timeouts) -> None:
        self.upstream = upstream
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._idle: list[UpstreamConnection] = []
        idle_s = IDLE_S if upstream.tls else BRIEF_IDLE_S
        self._idle_s = min(timeouts.idle_conn or idle_s, idle_s)
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        # With `localhost` there are two places where it may listen, and the one that does is kept.
        self._hosts = _LOOPBACK if upstream.host == "localhost" else (upstream.host,)

    @property
    def is_peers(self) -> bool:
        """Whether this leads to another machine's model."""
        return self.upstream.generation == 0

    def take(self) -> UpstreamConnection | None:
        """Return the connection that was used last, if one is kept and young enough."""
        youngest = self._loop.time() - self._idle_s
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                if (connection.idle_since or 0.0) >= youngest:
                    return connection
                connection.transport.close()
        return None

    def release(self, connection: UpstreamConnection, reusable: bool) -> None:
        """Keep a connection for the next request, or close it."""
        if self._closed or not reusable:
            connection.transport.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._idle_s, self._sweep)

    def close(self) -> None:
        """Close what is kept; connections in use are closed after their answer."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self._idle:
            connection.transport.close()
        self._idle.clear()

    async def connect(self) -> UpstreamConnection:
        """Open a connection. Raises UpstreamRefused, BadGateway and GatewayTimeout."""
        refusal: OSError | None = None
        for host in self._hosts:
            try:
                async with asyncio.timeout(self._timeouts.connect or None):
                    connection = await self._open(host)
            except TimeoutError:
                raise GatewayTimeout(
                    f"{self._name()} took no connection within {self._timeouts.connect} s "
                    "(timeouts.connect)"
                ) from None
            except OSError as error:
                refusal = error
                if not isinstance(error, ConnectionRefusedError):
                    break  # somebody is there, so there is no use in looking elsewhere
            else:
                self._hosts = (host,)
                return connection
        text = f"{self._name()} can't be reached: {refusal}"
        if isinstance(refusal, ConnectionRefusedError):
            raise UpstreamRefused(text)
        raise BadGateway(text, retry_after_s=1.0)

    async def _open(self, host: str) -> UpstreamConnection:
        upstream, timeouts = self.upstream, self._timeouts
        secure: dict[str, Any] = {}
        if upstream.tls:
            secure["ssl"] = _tls_context()
            secure["server_hostname"] = upstream.host
            secure["ssl_handshake_timeout"] = timeouts.tls_handshake or None
        _, connection = await self._loop.create_connection(
            lambda: UpstreamConnection(self.release), host, upstream.port, **secure
        )
        if timeouts.keepalive and host not in _LOOPBACK:
            _keep_alive(connection.transport, timeouts.keepalive)
        return connection

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = self._loop.time() - self._idle_s
        old = [c for c in self._idle if (c.idle_since or 0.0) <= oldest or not c.is_open]
        self._idle = [c for c in self._idle if c not in old]
        for connection in old:
            connection.transport.close()
        if self._idle:
            due = self._idle[0].idle_since or 0.0
            self._sweeper = self._loop.call_at(due + self._idle_s, self._sweep)

    def _name(self) -> str:
        return f"model {self.upstream.model!r} at {self.upstream.host}:{self.upstream.port}"


class Pools:
    """The pool of each model that is up."""

    def __init__(self, timeouts: Mapping[str, Timeouts]) -> None:
        self._timeouts = dict(timeouts)
        self._pools: dict[str, Pool] = {}

    def of(self, upstream: Upstream) -> Pool:
        """Return the pool for this generation, which ends those of older ones."""
        pool = self._pools.get(upstream.model)
        if pool is None or pool.upstream.generation != upstream.generation:
            self.drop(upstream.model)
            pool = Pool(upstream, self._timeouts[upstream.model])
            self._pools[upstream.model] = pool
        return pool

    def adopt(self, timeouts: Mapping[str, Timeouts]) -> None:
        """Go by other limits; connections that go by the old ones end with their answers.

        So do those to peers, which may be other ones now.
        """
        for model, pool in list(self._pools.items()):
            if pool.is_peers or timeouts.get(model, self._timeouts[model]) != self._timeouts[model]:
                self.drop(model)
        self._timeouts |= timeouts  # who is gone may still have requests

    def follow(self, view: ModelView, _: State) -> None:
        """Drop the connections to a model that isn't ready any more."""
        if view.state is not State.READY:
            self.drop(view.model)

    def drop(self, model: str) -> None:
        """Close what is kept for `model`."""
        if pool := self._pools.pop(model, None):
            pool.close()

    def close(self) -> None:
        """Close everything that is kept."""
        for model in list(self._pools):
            self.drop(model)


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _keep_alive(transport: asyncio.Transport, seconds: int) -> None:
    """Have the kernel probe a silent connection to another machine."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with suppress(AttributeError):  # macOS has another name for the first
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
