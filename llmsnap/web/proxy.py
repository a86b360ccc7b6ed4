"""Passes requests on to the models they name, and the answers back: the hot path."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from functools import lru_cache, partial
from time import monotonic
from typing import Final

from aiohttp import hdrs, web

from llmsnap.config.schema import Config
from llmsnap.core.lifecycle import State
from llmsnap.errors import ModelNotFound
from llmsnap.runtime.tasks import Background
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.recorder import Recorder
from llmsnap.web.body import HeldBody
from llmsnap.web.bridge import divert, outlet_for, relayed
from llmsnap.web.courier import Courier
from llmsnap.web.delivery import Delivery, Manner
from llmsnap.web.directory import all_names, routes_for
from llmsnap.web.head import Head, client_ip
from llmsnap.web.headers import CLIENT_KEYS, Dates, model_line
from llmsnap.web.inflight import InFlight
from llmsnap.web.loading import CHAT
from llmsnap.web.monitoring import Monitoring
from llmsnap.web.order import Order, Payload, upgrade_lines
from llmsnap.web.outbox import Outbox
from llmsnap.web.outlet import Outlet
from llmsnap.web.peering import refuse_loop, with_model
from llmsnap.web.resuming import Conversations
from llmsnap.web.select import Wanted, class_of, wanted
from llmsnap.web.server import FORM_POSTS, JSON_POSTS, QUERY_GETS
from llmsnap.web.serving import Lender, Route, Serving, Shop
from llmsnap.web.sse import PING_S
from llmsnap.web.standins import StandIns
from llmsnap.web.upstream_pool import Pools
from llmsnap.web.upstream_routes import QUIET_PATHS, plain_path, raw_target

_PREFIXES: Final = ("/v/", "/audioapi/")
"""Not part of the path upstream."""
_INFERENCE: Final = frozenset({*JSON_POSTS, *FORM_POSTS})
_READS: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})
_SHORT_BYTES: Final = 64 * 1024


class Proxy:
    """Serves what names a model. Build it within the loop."""

    def __init__(
        self,
        config: Config,
        lender: Lender,
        recorder: Recorder | None = None,
        *,
        conversations: Conversations | None = None,
        ping_s: float = PING_S,
    ) -> None:
        """`ping_s`: after so much silence a waiting stream gets a comment."""
        loop = asyncio.get_running_loop()
        dates = Dates(loop.time)
        self.outbox = Outbox(loop)
        self.mark = f"llmsnap-{secrets.token_hex(8)}"
        """What it calls itself towards peers, in `Via`."""
        self._manner_of = lambda id_: Manner(id_, model_line(id_), dates, ping_s)
        self._pools = Pools({})
        self._go_by(config)
        self.standins = StandIns(config, lender.view)
        self._targets = {path: without_prefix(path) for path in _INFERENCE}
        self._background = Background()
        courier = Courier(self._pools, self.outbox, self._background)
        self.inflight = InFlight()
        self._shop = Shop(
            loop=loop,
            lender=lender,
            courier=courier,
            background=self._background,
            recorder=recorder or Recorder(),
            inflight=self.inflight,
            conversations=conversations,
        )
        self._monitoring = Monitoring(lender, self._pools)
        self._watches = [lender.watch(self._pools.follow), lender.watch(self._monitoring.follow)]

    def adopt(self, config: Config, lender: Lender) -> None:
        """Go by another configuration, for all requests that come from now on."""
        self._go_by(config)
        self.standins.adopt(config)
        self._shop = replace(self._shop, lender=lender)
        self._monitoring.lender = lender

    def _go_by(self, config: Config) -> None:
        routes = routes_for(config, self._manner_of, self.mark)
        self.names = all_names(config)
        """Every name that a request may use, with the id that it means."""
        self._routes = {name: routes[id_] for name, id_ in self.names.items()}
        self._max_body_bytes = config.max_body_bytes
        self._hidden = CLIENT_KEYS if config.api_keys else frozenset[bytes]()
        self._pools.adopt({id_: route.config.timeouts for id_, route in routes.items()})

    def hang_up(self) -> None:
        """Tell the clients of WebSockets that we go away: they would never leave by themselves."""
        for tunnel in list(self._shop.tunnels):
            tunnel.hang_up()

    async def aclose(self) -> None:
        """End what clients who have left still have running, and close all connections."""
        for unwatch in self._watches:
            unwatch()
        await self._background.aclose()
        self._pools.close()

    async def infer(self, request: web.Request) -> web.StreamResponse:
        """Serve one of aiohttp's requests that names its model in its body or query."""
        body = HeldBody.of_request(request, self._max_body_bytes)
        outlet, declared = outlet_for(request, self.outbox), request.content_length
        return await relayed(request, outlet, self.serve(request, body, outlet, declared=declared))

    async def serve(
        self, request: Head, body: HeldBody, outlet: Outlet, *, declared: int | None = None
    ) -> None:
        """Serve a request that names its model in its body or query.

        `declared` is its `Content-Length`, should `body` not be all here. Raises LlmsnapError while
        the client has heard nothing.
        """
        try:
            asked = await wanted(request, body)
            if asked.model in self.standins.names:
                with self.standins.standing_in(asked.model) as asked.stand_in:
                    await self._serve(request, body, outlet, asked, declared)
            else:
                await self._serve(request, body, outlet, asked, declared)
        finally:
            body.close()

    async def _serve(
        self, request: Head, body: HeldBody, outlet: Outlet, asked: Wanted, declared: int | None
    ) -> None:
        route = self._route(request, asked.stand_in or asked.model)
        target = self._targets.get(request.raw_path) or upstream_target(request)
        if route.via or asked.stand_in:
            target = with_model(target, route.filters.name or asked.stand_in)
        order = Order(
            request,
            target,
            await route.filters.payload(asked, body, declared=declared),
            self._hidden,
            wants_plain=asked.stream or route.renames,
            is_helper=class_of(request),
            via=route.via,
        )
        rename_to = asked.model if route.renames else ""
        delivery = Delivery(request, outlet, route.manner, rename_to=rename_to)
        if asked.stream:
            delivery.keep_company()
            if route.config.send_loading_state and target.startswith(CHAT):
                self._show_loading(delivery, route.id, asked.model)
        record = _record(request, route, order)
        if asked.stand_in:
            record.selector = self.standins.selector_of(asked.model)
        await Serving(self._shop, route, order, delivery, record).run(limited=True)

    def _show_loading(self, delivery: Delivery, model: str, name: str) -> None:
        view = partial(self._shop.lender.view, model)
        if view().state is not State.READY:
            delivery.show_loading(name, view)

    async def monitor(self, request: web.Request) -> web.StreamResponse:
        """Answer a GET that names its model in the query, without loading, waking or using it."""
        outlet = outlet_for(request, self.outbox)
        return await relayed(request, outlet, self._monitor(request, outlet))

    async def _monitor(self, request: web.Request, outlet: Outlet) -> None:
        name = request.query["model"]
        with self.standins.standing_in(name) as target:
            route = self._route(request, target)
            path = upstream_target(request)
            if route.via or target != name:
                path = with_model(path, route.filters.name or target)
            await self._look(request, outlet, route, path)

    async def _look(self, request: Head, outlet: Outlet, route: Route, target: bytes) -> None:
        order = Order(request, target, Payload(), self._hidden, via=route.via)
        await self._monitoring.answer(order, outlet, route.manner)

    async def forward(
        self, request: web.Request, model: str, path: str, *, is_use: bool = True
    ) -> web.StreamResponse:
        """Serve a request to `/upstream/MODEL/…` as it is.

        `path` is the raw path below the model's name, with its query. Not `is_use`: it neither
        loads the model nor keeps it.
        """
        outlet = outlet_for(request, self.outbox)
        serving = self._forward(request, outlet, model, path, is_use=is_use)
        return await relayed(request, outlet, serving)

    async def _forward(
        self, request: web.Request, outlet: Outlet, model: str, path: str, *, is_use: bool
    ) -> None:
        route = self._route(request, model)
        plain = plain_path(path.partition("?")[0])
        target = path.encode("utf-8", "surrogateescape")
        if request.method in _READS and plain in QUIET_PATHS:
            await self._look(request, outlet, route, target)
            return
        body = HeldBody.of_request(request, self._max_body_bytes)
        try:
            upgrade = upgrade_lines(request)
            payload = await _untouched(request, body)
            order = Order(request, target, payload, self._hidden, upgrade, via=route.via)
            order.is_helper = class_of(request)
            order.is_use = is_use or bool(upgrade)
            delivery = Delivery(request, outlet, route.manner)
            record = _record(request, route, order)
            divert_to = partial(divert, request) if upgrade else None
            serving = Serving(self._shop, route, order, delivery, record, divert_to)
            if upgrade and route.config.compat.ignore_websockets:
                await serving.run_unnoticed()
            else:
                is_inference = request.method == hdrs.METH_POST and plain in _INFERENCE
                await serving.run(limited=is_inference)
        finally:
            body.close()

    def _route(self, request: Head, name: str) -> Route:
        route = self._routes.get(name)
        if route is None:
            raise ModelNotFound(f"no model or alias is called {name!r}; see /v1/models")
        if route.via:
            refuse_loop(request, self.mark.encode())
        return route


def _record(request: Head, route: Route, order: Order) -> RequestRecord:
    return RequestRecord(
        model=route.id,
        path=_shown_path(order.target),
        client=client_ip(request),
        arrived_at=monotonic(),
    )


@lru_cache(maxsize=256)
def _shown_path(target: bytes) -> str:
    return target.partition(b"?")[0].decode("utf-8", "replace")


def upstream_target(request: Head) -> bytes:
    """Return path and query for the server, as the client wrote them but for prefixes of ours."""
    return without_prefix(*raw_target(request))


def without_prefix(path: str, query: str = "") -> bytes:
    """Return a path that clients use as the server knows it."""
    for prefix in _PREFIXES:
        if path.startswith(prefix):
            path = path[len(prefix) - 1 :]
    return (path + query).encode("utf-8", "surrogateescape")


async def _untouched(request: web.Request, body: HeldBody) -> Payload:
    """Return the body as it comes; a short one is held, so that it can be sent twice."""
    declared = request.content_length
    if not request.body_exists:
        return Payload()
    if declared is None or declared > _SHORT_BYTES:
        return Payload(size=declared, rest=body)
    held = await body.whole()
    return Payload([bytes(held)], len(held))


INFERENCE_PATHS: Final = frozenset(
    without_prefix(path).decode() for path in (*_INFERENCE, *QUERY_GETS)
)
"""As servers know them."""
