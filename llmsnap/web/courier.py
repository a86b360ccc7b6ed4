"""Takes orders to models' servers and has the answers delivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import hdrs

from llmsnap.errors import BadRequest, LlmsnapError, UpstreamLost
from llmsnap.runtime.tasks import Background, settled
from llmsnap.runtime.upstream import Upstream
from llmsnap.web.order import Order
from llmsnap.web.outbox import Outbox
from llmsnap.web.reply import Broken, Reply
from llmsnap.web.upstream import UpstreamConnection
from llmsnap.web.upstream_pool import Pools


class Courier:
    """Asks an upstream once, or twice where the first try met a connection that had just ended."""

    def __init__(self, pools: Pools, outbox: Outbox, background: Background) -> None:
        self._pools = pools
        self._outbox = outbox
        self._background = background

    async def ask(self, order: Order, reply: Reply, upstream: Upstream) -> None:
        """Return when `reply` is settled. Raises LlmsnapError while the client heard nothing."""
        pool = self._pools.of(upstream)
        if order.payload.rest is None and (kept := pool.take()) is not None:
            try:
                await self._try(order, reply, kept, upstream)
                return
            except Broken:
                pass  # its server closed it while it was idle, and we hadn't seen that yet
        fresh = await pool.connect()
        try:
            await self._try(order, reply, fresh, upstream)
        except Broken as broken:
            raise UpstreamLost(f"model {upstream.model!r} gave no answer: {broken}") from None

    async def _try(
        self, order: Order, reply: Reply, connection: UpstreamConnection, upstream: Upstream
    ) -> None:
        if not reply.attach(connection, is_head=order.request.method == hdrs.METH_HEAD):
            connection.abandon()
            await reply.settled()
            return
        head = order.head(upstream)
        if order.payload.is_short:
            self._outbox.write(connection.transport, (head, *order.payload.segments))
            connection.sent()
            await reply.settled()
            return
        async with self._sending(order, reply, connection, head):
            await reply.settled()

    @asynccontextmanager
    async def _sending(
        self, order: Order, reply: Reply, connection: UpstreamConnection, head: bytes
    ) -> AsyncIterator[None]:
        """Send beside the block, for servers may answer before they have the whole body."""

        async def send() -> None:
            try:
                await order.send(connection, head, reply.patience)
            except LlmsnapError as error:
                reply.fail(error)
            except ConnectionError:
                reply.fail(BadRequest("the client left in the middle of its request"))

        sender = self._background.spawn(send(), name="send a body")
        try:
            yield
        finally:
            sender.cancel()
            if await settled(sender):
                raise asyncio.CancelledError
