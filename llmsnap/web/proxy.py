"""Passes requests on to the models they name, and the answers back: the hot path."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from aiohttp import hdrs, web

from llmsnap.config.schema import Config
from llmsnap.errors import ModelNotFound
from llmsnap.runtime.tasks import Background
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.recorder import Recorder
from llmsnap.web.accesslog import client_ip
from llmsnap.web.body import HeldBody
from llmsnap.web.courier import Courier
from llmsnap.web.delivery import Delivery, Manner
from llmsnap.web.filters import BodyFilters
from llmsnap.web.headers import CLIENT_KEYS, Dates, model_line
from llmsnap.web.monitoring import Monitoring
from llmsnap.web.order import Order, Payload, upgrade_lines
from llmsnap.web.outbox import Outbox
from llmsnap.web.select import wanted
from llmsnap.web.server import FORM_POSTS, JSON_POSTS
from llmsnap.web.serving import Lender, Route, Serving, Shop
from llmsnap.web.sse import PING_S
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
        ping_s: float = PING_S,
    ) -> None:
        """`ping_s`: after so much silence a waiting stream gets a comment."""
        loop = asyncio.get_running_loop()
        dates, outbox = Dates(loop.time), Outbox(loop)
        routes = {
            id_: Route(
                id_,
                model,
                BodyFilters(model),
                Manner(id_, model_line(id_), dates, outbox, ping_s),
                drains=model.on_client_disconnect == "drain",
                renames=model.response_model_name == "requested",
            )
            for id_, model in config.models.items()
        }
        self._routes = {name: routes[id_] for name, id_ in config.names().items()}
        self._targets = {path: without_prefix(path) for path in _INFERENCE}
        self._max_body_bytes = config.max_body_bytes
        self._hidden = CLIENT_KEYS if config.api_keys else frozenset[bytes]()
        self._pools = Pools({id_: model.timeouts for id_, model in config.models.items()})
        self._background = Background()
        courier = Courier(self._pools, outbox, self._background)
        self._shop = Shop(loop, lender, courier, self._background, recorder or Recorder())
        self._monitoring = Monitoring(lender, self._pools)
        self._watches = [lender.watch(self._pools.follow), lender.watch(self._monitoring.follow)]

    async def aclose(self) -> None:
        """End what clients who have left still have running, and close all connections."""
        for unwatch in self._watches:
            unwatch()
        await self._background.aclose()
        self._pools.close()

    async def infer(self, request: web.Request) -> web.StreamResponse:
        """Serve a request that names its model in its body or query."""
        declared = request.content_length
        body = HeldBody(request.content, max_bytes=self._max_body_bytes, declared=declared)
        try:
            asked = await wanted(request, body)
            route = self._route(asked.model)
            order = Order(
                request,
                self._targets.get(request.raw_path) or upstream_target(request),
                await route.filters.payload(asked, body, declared=declared),
                self._hidden,
                wants_plain=asked.stream or route.renames,
            )
            rename_to = asked.model if route.renames else ""
            delivery = Delivery(request, route.manner, rename_to=rename_to)
            if asked.stream:
                delivery.keep_company()
            record = _record(request, route, order)
            return await Serving(self._shop, route, order, delivery, record).run(limited=True)
        finally:
            body.close()

    async def forward(self, request: web.Request, model: str, path: str) -> web.StreamResponse:
        """Serve a request to `/upstream/MODEL/…` as it is.

        `path` is the raw path below the model's name, with its query.
        """
        route = self._route(model)
        plain = plain_path(path.partition("?")[0])
        target = path.encode("utf-8", "surrogateescape")
        if request.method in _READS and plain in QUIET_PATHS:
            order = Order(request, target, Payload(), self._hidden)
            return await self._monitoring.answer(order, route.manner)
        declared = request.content_length
        body = HeldBody(request.content, max_bytes=self._max_body_bytes, declared=declared)
        try:
            upgrade = upgrade_lines(request)
            payload = await _untouched(request, body, declared)
            order = Order(request, target, payload, self._hidden, upgrade)
            record = _record(request, route, order)
            serving = Serving(self._shop, route, order, Delivery(request, route.manner), record)
            if upgrade and route.config.compat.ignore_websockets:
                return await serving.run_unnoticed()
            is_inference = request.method == hdrs.METH_POST and plain in _INFERENCE
            return await serving.run(limited=is_inference)
        finally:
            body.close()

    def _route(self, name: str) -> Route:
        route = self._routes.get(name)
        if route is None:
            raise ModelNotFound(f"no model or alias {name!r}; see /v1/models")
        return route


def _record(request: web.Request, route: Route, order: Order) -> RequestRecord:
    return RequestRecord(
        model=route.id,
        path=order.target.partition(b"?")[0].decode("utf-8", "replace"),
        client=client_ip(request),
        arrived_at=monotonic(),
    )


def upstream_target(request: web.Request) -> bytes:
    """Return path and query for the server, as the client wrote them but for prefixes of ours."""
    return without_prefix(*raw_target(request))


def without_prefix(path: str, query: str = "") -> bytes:
    """Return a path that clients use as the server knows it."""
    for prefix in _PREFIXES:
        if path.startswith(prefix):
            path = path[len(prefix) - 1 :]
    return (path + query).encode("utf-8", "surrogateescape")


async def _untouched(request: web.Request, body: HeldBody, declared: int | None) -> Payload:
    """Return the body as it comes; a short one is held, so that it can be sent twice."""
    if not request.body_exists:
        return Payload()
    if declared is None or declared > _SHORT_BYTES:
        return Payload(size=declared, rest=body)
    held = await body.whole()
    return Payload([bytes(held)], len(held))
