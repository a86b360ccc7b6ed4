"""One request from its place in the queue to the end of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from llmsnap.config.schema import ModelConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView
from llmsnap.errors import BadGateway, Conflict, GatewayTimeout, LlmsnapError, UpstreamRefused
from llmsnap.runtime.lease import Lease
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.upstream import Upstream
from llmsnap.sessions.subject import SlotSpoiled
from llmsnap.telemetry.captures import Capture
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.recorder import Recorder
from llmsnap.web.courier import Courier
from llmsnap.web.delivery import Delivery, Manner
from llmsnap.web.filters import BodyFilters
from llmsnap.web.inflight import InFlight
from llmsnap.web.order import Order
from llmsnap.web.reply import Reply
from llmsnap.web.resuming import Conversations, bring_back
from llmsnap.web.tunnel import Tunnel

_NEWS_S: Final = 0.2
"""The news that a process has ended comes that much later than the end of its connections."""


class Lender(Protocol):
    """What the hot path needs of the supervisor."""

    def lease(
        self,
        model: str,
        *,
        limited: bool = True,
        is_helper: bool | None = None,
        is_use: bool = True,
    ) -> Lease: ...

    def upstream(self, model: str) -> Upstream | None: ...

    def view(self, model: str) -> ModelView: ...

    def stalled(self, model: str, generation: int) -> None: ...

    def deaf(self, model: str, generation: int) -> None: ...

    def watch(self, callback: Callable[[ModelView, State], None]) -> Callable[[], None]: ...


@dataclass(frozen=True, slots=True)
class Route:
    """One model, as far as its requests are concerned."""

    id: str
    config: ModelConfig
    filters: BodyFilters
    manner: Manner
    drains: bool
    """Whether the model goes on when the client leaves."""
    renames: bool
    """Whether its answers name it as the client does."""
    via: bytes = b""
    """What a request to a peer adds to `Via`; empty: the model is of this machine."""


@dataclass(frozen=True, slots=True)
class Shop:
    """What all requests share."""

    loop: asyncio.AbstractEventLoop
    lender: Lender
    courier: Courier
    background: Background
    recorder: Recorder
    inflight: InFlight
    conversations: Conversations | None = None
    tunnels: set[Tunnel] = field(default_factory=set)
    """What has switched to another protocol and isn't over."""


class Serving:
    """One request at work, which is put down in `record`."""

    def __init__(
        self,
        shop: Shop,
        route: Route,
        order: Order,
        delivery: Delivery,
        record: RequestRecord,
        divert: Callable[[Tunnel], None] | None = None,
    ) -> None:
        """`divert`: the client asks for a switch of protocols; see `Tunnel`."""
        self._lender = shop.lender
        self._courier = shop.courier
        self._background = shop.background
        self._route = route
        self._order = order
        self._delivery = delivery
        self._record = record
        self._recorder = shop.recorder
        self._inflight = shop.inflight
        self._tunnels = shop.tunnels
        self._conversations = shop.conversations
        self._reply = Reply(record, delivery, shop.loop, reads_tokens=shop.recorder.reads_tokens)
        self._reply.may_switch = divert is not None
        self._divert = divert

    def run(self, *, limited: bool) -> Awaitable[None]:
        """Wait for the model and serve. Raises LlmsnapError while the client has heard nothing.

        Not `limited`: it doesn't count against `concurrencyLimit`.
        """
        return self._run_to_the_end(limited) if self._route.drains else self._run(limited)

    async def _run(self, limited: bool) -> None:
        lease = self._lease(limited)
        request = self._order.request
        number = self._inflight.add(
            self._record, request.method, request.raw_headers, lease, self._delivery.outlet
        )
        if limited and (limit := self._recorder.capture_limit):
            self._record.capture = self._captured(limit)
        try:
            await self._run_until_unspoiled(lease, number, limited)
        except LlmsnapError as error:
            if not self._delivery.has_begun:
                self._record.status = error.status
                self._record.error = error.message
                self._record.content_type = b"application/json"
                raise
            self._reply.fail(error)
        finally:
            del self._inflight.running[number]
            self._reply.close()
            self._record.end(is_whole=self._delivery.outlet.is_whole)
            if limited:
                self._recorder.request(self._record)

    def _captured(self, limit: int) -> Capture:
        """Return what keeps this request and its answer whole."""
        request, payload = self._order.request, self._order.payload
        capture = Capture(self._record.path, request.raw_headers, limit)
        if payload.rest is None:
            capture.asked(payload.segments, payload.size)
        return capture

    async def _run_until_unspoiled(self, lease: Lease, number: int, limited: bool) -> None:
        """Run, and again where a restore went wrong before anything was asked of the server."""
        for resumes in (limited, limited, limited, False):
            try:
                return await self._run_with(lease, resumes=resumes)
            except SlotSpoiled:
                if self._record.forwarded_at or not resumes:
                    raise
                lease = self._inflight.running[number].lease = self._lease(limited)

    def _lease(self, limited: bool) -> Lease:
        order = self._order
        return self._lender.lease(
            self._route.id, limited=limited, is_helper=order.is_helper, is_use=order.is_use
        )

    async def _run_with(self, lease: Lease, *, resumes: bool) -> None:
        """Serve as soon as the model is up; it `resumes` where its conversation is saved.

        Raises SlotSpoiled when its process is restarted before it got anything.
        """
        rest = self._order.payload.rest
        if rest is not None:
            rest.listen(self._background)
        self._record.held = lease
        async with lease:
            if rest is not None:
                rest.stop_listening()
            if resumes and self._conversations is not None:
                await self._bring_back(self._conversations, lease)
            lease.on_abort = self._reply.fail
            if lease.aborted is not None:
                raise lease.aborted
            self._record.forwarded(lease)
            self._delivery.loaded()
            self._set_limits(lease.upstream)
            try:
                await self._courier.ask(self._order, self._reply, lease.upstream)
            except BadGateway as lost:
                cause = await _cause(lease, lost)
                self._tell_if_deaf(cause, lease.upstream)
                raise cause from None
            if self._reply.switched is not None:
                await self._switch(lease)

    async def _bring_back(self, conversations: Conversations, lease: Lease) -> None:
        if (desk := conversations.desk(self._route.id)) is not None:
            await bring_back(desk, self._order, self._record, lease)

    async def _run_to_the_end(self, limited: bool) -> None:
        """Run, and once the model is at work, go on though the client leaves."""

        async def outcome() -> LlmsnapError | None:
            try:
                await self._run(limited)
            except LlmsnapError as error:
                return error
            return None

        running = self._background.spawn(outcome(), name=f"serve {self._route.id} to the end")
        try:
            error = await asyncio.shield(running)
        except asyncio.CancelledError:
            if not self._record.forwarded_at:
                running.cancel()
            raise
        if error is not None:
            raise error

    async def run_unnoticed(self) -> None:
        """Serve without a lease: it neither loads the model nor keeps it. Raises Conflict."""
        upstream = self._lender.upstream(self._route.id)
        if upstream is None:
            raise Conflict(f"model {self._route.id!r} isn't up, and this is no reason to load it")
        try:
            await self._courier.ask(self._order, self._reply, upstream)
            await self._switch(None)
        finally:
            self._reply.close()

    async def _switch(self, lease: Lease | None) -> None:
        """Pass on what the upstream has switched to another protocol."""
        if self._reply.switched is None or self._divert is None:
            return
        connection, answer, tail = self._reply.switched
        tunnel = Tunnel(self._delivery.outlet, connection.transport, self._divert)
        if lease is not None:
            lease.on_abort = tunnel.fail
        self._tunnels.add(tunnel)
        try:
            await tunnel.run(answer, tail, self._route.manner.model_line)
        finally:
            self._tunnels.discard(tunnel)

    def _set_limits(self, upstream: Upstream) -> None:
        config = self._route.config
        if limit_s := config.timeouts.response_header:
            self._reply.limit_header(limit_s, partial(self._late, limit_s))
        if config.stall_timeout_s:
            stalled = partial(self._stalled, upstream.generation, config.stall_timeout_s)
            self._reply.limit_silence(config.stall_timeout_s, stalled)

    def _tell_if_deaf(self, cause: LlmsnapError, upstream: Upstream) -> None:
        """Have a process replaced that lives and doesn't listen, unless it never said it would."""
        if isinstance(cause, UpstreamRefused) and self._route.config.check_endpoint != "none":
            self._lender.deaf(upstream.model, upstream.generation)

    def _late(self, limit_s: float) -> LlmsnapError:
        return GatewayTimeout(
            f"model {self._route.id!r} didn't begin its answer within {limit_s:g} s "
            "(timeouts.responseHeader)"
        )

    def _stalled(self, generation: int, limit_s: float) -> None:
        model = self._route.id
        view = self._lender.view(model)
        awake_since = view.ready_at if view.state is State.READY else None
        if awake_since is None or awake_since > asyncio.get_running_loop().time() - limit_s:
            return  # it was put to sleep in the middle of its answer, and will go on
        self._reply.fail(
            GatewayTimeout(
                f"model {model!r} sent nothing for {limit_s:g} s (stallTimeout); it is ended"
            )
        )
        self._lender.stalled(model, generation)


async def _cause(lease: Lease, lost: LlmsnapError) -> LlmsnapError:
    """Return why an upstream is gone: what its runner says, if that comes at once."""
    told = asyncio.Event()
    lease.on_abort = lambda _: told.set()  # it may come even as the wait is given up
    if lease.aborted is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_NEWS_S):
                await told.wait()
    return lease.aborted or lost
