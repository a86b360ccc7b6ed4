"""The HTTP application: every route, behind one gate and one renderer of errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from aiohttp import web

from llmsnap.config.schema import Config
from llmsnap.runtime.logs import Logs
from llmsnap.web.admin import Admin, Fleet
from llmsnap.web.devices import Memory
from llmsnap.web.envelope import render_errors
from llmsnap.web.express import EXPRESS, Express, Serves
from llmsnap.web.gate import Gate
from llmsnap.web.inflight import InFlight, InFlightRoutes
from llmsnap.web.logs import LogRoutes
from llmsnap.web.ollama.routes import OllamaRoutes
from llmsnap.web.openai import ModelList
from llmsnap.web.page import PageRoutes
from llmsnap.web.profiles import ProfileRoutes
from llmsnap.web.router import RouterRoutes
from llmsnap.web.standins import StandIns
from llmsnap.web.upstream_routes import Forwarding, UpstreamRoutes

_VERSIONED: Final = (
    "chat/completions",
    "responses",
    "completions",
    "messages",
    "messages/count_tokens",
    "embeddings",
    "rerank",
    "reranking",
)

JSON_POSTS: Final = (
    *(f"/v1/{name}" for name in _VERSIONED),
    *(f"/v/{name}" for name in _VERSIONED),
    "/rerank",
    "/reranking",
    "/infill",
    "/completion",
    *("/completions", "/chat/completions", "/embedding", "/embeddings"),
    "/v1/audio/speech",
    "/v1/audio/voices",
    "/v1/images/generations",
    "/sdapi/v1/txt2img",
    "/sdapi/v1/img2img",
    "/audioapi/v1/tasks/run",
)
"""Inference routes whose JSON body names the model."""

FORM_POSTS: Final = ("/v1/audio/transcriptions", "/v1/images/edits")
"""Inference routes whose form names the model."""

QUERY_GETS: Final = ("/v1/audio/voices", "/sdapi/v1/loras")
"""Inference routes whose query names the model."""


class Adopts(Protocol):
    """A part that can go by another configuration from one moment to the next."""

    def adopt(self, config: Config) -> None: ...


PARTS: Final = web.AppKey("parts", tuple[Adopts, ...])
"""What of an application goes by the configuration."""


class Inference(Forwarding, Serves, Protocol):
    """The hot path, as the routes see it."""

    @property
    def standins(self) -> StandIns: ...

    @property
    def names(self) -> Mapping[str, str]: ...

    @property
    def inflight(self) -> InFlight: ...

    async def infer(self, request: web.Request) -> web.StreamResponse: ...

    async def monitor(self, request: web.Request) -> web.StreamResponse: ...


def build_app(
    config: Config,
    fleet: Fleet,
    proxy: Inference,
    logs: Logs,
    *,
    loopback: bool,
    clock: Callable[[], float],
    memory: Memory | None = None,
    more: Iterable[web.RouteDef] = (),
) -> web.Application:
    """Return the application; it owns nothing that it is given.

    `loopback`: only this machine reaches it. `clock`: the views' clock. `more`: optional routes.
    """
    gate = Gate(api_keys=config.api_keys, allowed_hosts=config.allowed_hosts, loopback=loopback)
    app = web.Application(
        middlewares=[render_errors, gate.guard],
        client_max_size=sys.maxsize,  # the proxy reads bodies itself, up to maxBody
    )
    admin = Admin(config, fleet, clock, memory)
    router = RouterRoutes(config, ModelList(config, fleet.views, proxy.standins), fleet, proxy)
    ollama = OllamaRoutes(config, fleet, proxy, clock, memory)
    app.on_shutdown.append(router.aclose)
    log_routes, upstream = LogRoutes(logs, config.names()), upstream_routes(config, fleet, proxy)
    routes = (
        *admin.routes(),
        *PageRoutes().routes(),
        *router.routes(),
        *ollama.routes(),
        *ProfileRoutes(proxy.standins).routes(),
        *InFlightRoutes(proxy.inflight, clock).routes(),
        *log_routes.routes(),
        *upstream.routes(),
    )
    mount(app, gate, (*routes, *more, *inference_routes(proxy)))
    app[EXPRESS] = express_for(config, gate, proxy)
    app[PARTS] = (gate, admin, router, ollama, log_routes, upstream, app[EXPRESS])
    return app


def mount(app: web.Application, gate: Gate, routes: Iterable[web.RouteDef]) -> None:
    """Have `app` serve `routes`, behind `gate`."""
    for route in routes:
        kwargs = {**route.kwargs, "expect_handler": gate.expect}
        web.RouteDef(route.method, route.path, route.handler, kwargs).register(app.router)


def express_for(config: Config, gate: Gate, proxy: Inference) -> Express:
    """Return what is served past aiohttp."""
    express = Express(frozenset({*JSON_POSTS, *FORM_POSTS}), gate, proxy)
    express.adopt(config)
    return express


def upstream_routes(config: Config, fleet: Fleet, proxy: Inference) -> UpstreamRoutes:
    """Return what leads to models' own servers."""
    return UpstreamRoutes(
        lambda: proxy.standins.pinned_names(proxy.names),
        config.models,
        config.upstream.ignore_paths,
        fleet.view,
        proxy,
    )


def inference_routes(proxy: Inference) -> list[web.RouteDef]:
    """Return the routes of both predecessors that name their model in the request."""
    return [
        *(web.post(path, proxy.infer) for path in (*JSON_POSTS, *FORM_POSTS)),
        *(web.get(path, proxy.infer) for path in QUERY_GETS),
    ]
