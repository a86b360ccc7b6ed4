"""The API of llama-server's router, so that its web page and its clients work against this proxy.

What it says and how was recorded from a real one: `tests/web/record_router.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from llmsnap import __version__
from llmsnap.config.schema import Config
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView
from llmsnap.core.slot import DOWN
from llmsnap.errors import BadRequest, LlmsnapError
from llmsnap.runtime.tasks import Background
from llmsnap.telemetry.events import Follower
from llmsnap.web.admin import Fleet, known_model
from llmsnap.web.body import HeldBody
from llmsnap.web.envelope import json_answer
from llmsnap.web.openai import ModelList, Record
from llmsnap.web.select import in_json
from llmsnap.web.sse import event_head, send_events
from llmsnap.web.standins import StandIns

logger = logging.getLogger(__name__)

WORDS: Final[Mapping[State, str]] = {
    State.STOPPED: "unloaded",
    State.STARTING: "loading",
    State.READY: "loaded",
    State.SLEEPING: "sleeping",
    State.ASLEEP: "sleeping",
    State.PAGING: "sleeping",
    State.WAKING: "loading",
    State.STOPPING: "loaded",
    State.FAILED: "failed",
}
"""What the router calls each state; a model is `unloaded` once it is gone."""

_POSTS: Final = (
    "/v1/chat/completions/control",
    *("/tokenize", "/detokenize", "/apply-template"),
    r"/slots/{row:\d+}",
)
"""What isn't inference, and names its model in its body all the same."""

_UP: Final = frozenset({State.STARTING, State.READY, State.WAKING})
_MOST_BYTES: Final = 64 * 1024
_STAGE: Final = "text_model"
_PROPS: Final[Record] = {
    "role": "router",
    "max_instances": 0,
    "models_autoload": True,
    "model_alias": "llmsnap",
    "model_path": "none",
    "default_generation_settings": {"params": None, "n_ctx": 0},
    "ui_settings": {},
    "build_info": f"llmsnap-{__version__}",
    "cors_proxy_enabled": False,
}
"""By `role` the web page knows that there are several models. No bound on how many: 0."""


class Asks(Protocol):
    """What the routes need of the hot path."""

    @property
    def standins(self) -> StandIns: ...

    async def infer(self, request: web.Request) -> web.StreamResponse: ...

    async def monitor(self, request: web.Request) -> web.StreamResponse: ...


class RouterRoutes:
    """Lists, loads and unloads models, tells of their states, and passes on what monitors ask."""

    def __init__(self, config: Config, models: ModelList, fleet: Fleet, proxy: Asks) -> None:
        self._names = config.names()
        self._models = models
        self._fleet = fleet
        self._proxy = proxy
        self._background = Background()
        self._followers = set[Follower]()
        self._unwatch = fleet.watch(self.follow)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            *self._models.routes(),
            web.get("/models", self.show),
            web.get("/models/sse", self.stream),
            web.post("/models/load", self.load),
            web.post("/models/unload", self.unload),
            web.get("/props", self.props),
            web.get("/slots", self.look),
            web.get("/lora-adapters", self.look),
            *(web.post(path, self._proxy.infer) for path in _POSTS),
        ]

    def adopt(self, config: Config) -> None:
        """Go by another configuration from now on, and tell those who listen."""
        self._names = config.names()
        self._models.adopt(config)
        self._tell({"model": "*", "event": "models_reload"})

    async def aclose(self, _: web.Application | None = None) -> None:
        """End the streams, and stop waiting for models."""
        self._unwatch()
        for follower in tuple(self._followers):
            follower.close()
        await self._background.aclose()

    async def show(self, request: web.Request) -> web.Response:
        """List the models as `/v1/models` does, with what the router says of them."""
        views = {view.model: view for view in self._fleet.views()}
        records = self._models.records()
        return self._models.answer(request, [_as_routers(record, views) for record in records])

    async def load(self, request: web.Request) -> web.Response:
        """Begin to load or wake a model. Raises BadRequest when it is up or on its way."""
        model = await self._model(request)
        state = self._fleet.view(model).state
        if state in _UP:
            raise BadRequest(f"model {model!r} is already running")
        self._background.spawn(self._bring_up(model), name=f"router: load {model}")
        return json_answer({"success": True})

    async def unload(self, request: web.Request) -> web.Response:
        """Begin to unload a model. Raises BadRequest when there is nothing to unload."""
        model = await self._model(request)
        if self._fleet.view(model).state in DOWN:
            raise BadRequest(f"model {model!r} is not running")
        self._background.spawn(self._take_down(model), name=f"router: unload {model}")
        return json_answer({"success": True})

    async def props(self, request: web.Request) -> web.StreamResponse:
        """Say what this is; of a model, what its server says or last said.

        Only `autoload=true` loads it for that.
        """
        if not request.query.get("model"):
            return json_answer(_PROPS)
        if request.query.get("autoload") in ("true", "1"):
            return await self._proxy.infer(request)
        return await self._proxy.monitor(request)

    async def look(self, request: web.Request) -> web.StreamResponse:
        """Say what a model's server says or last said. Raises BadRequest when none is named."""
        if not request.query.get("model"):
            raise BadRequest(f"the request names no model; ask for {request.path}?model=NAME")
        return await self._proxy.monitor(request)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Tell of each change of a model's state, until the client leaves or the proxy ends."""
        if request.method == "HEAD":
            return event_head()
        follower = Follower(self._followers.discard)
        self._followers.add(follower)
        try:
            return await send_events(request, follower, hello=b": here\n\n")
        finally:
            follower.close()

    def follow(self, view: ModelView, before: State) -> None:
        """Tell those who listen that a model has another state than `before`."""
        is_news = view.state is not State.STOPPING and WORDS[before] != WORDS[view.state]
        if not is_news or not self._followers:
            return
        if before is State.STARTING and view.state is State.READY:
            self._tell(_progress(view, 1.0))
        self._tell(self._news(view))
        if view.state is State.STARTING:
            self._tell(_progress(view, 0.0))

    def _tell(self, news: Record) -> None:
        message = b"data: %b\n\n" % msgspec.json.encode(news)
        for follower in self._followers:
            follower.put(message)

    def _news(self, view: ModelView) -> Record:
        data = status_of(view, key="status")
        if view.state is State.READY:
            ours = {record["id"]: record for record in self._models.records()}
            data |= {"info": ours.get(view.model, {"id": view.model})}
        kind = "model_status" if data["status"] == "loading" else "status_change"
        return {"model": view.model, "event": kind, "data": data}

    async def _bring_up(self, model: str) -> None:
        try:
            async with self._fleet.lease(model, limited=False):
                pass
        except LlmsnapError as error:
            logger.warning("model %s, asked for by /models/load: %s", model, error)

    async def _take_down(self, model: str) -> None:
        try:
            await self._fleet.unload(model)
        except LlmsnapError as error:
            logger.warning("model %s, to go by /models/unload: %s", model, error)

    async def _model(self, request: web.Request) -> str:
        """Return the model that the body names, whatever its type is said to be."""
        names = self._proxy.standins.pinned_names(self._names)
        body = await HeldBody.of_request(request, _MOST_BYTES).whole()
        return known_model(names, in_json(body).model)


def _progress(view: ModelView, value: float) -> Record:
    """Return how far a load is: a server tells only a router what is between begin and end."""
    progress = {"stages": [_STAGE], "current": _STAGE, "value": value}
    data = {"status": WORDS[State.STARTING], "progress": progress}
    return {"model": view.model, "event": "status_change", "data": data}


def status_of(view: ModelView, *, key: str = "value") -> Record:
    """Return the router's status of a model, its word under `key`.

    `exit_code` is the process's own after an end that nobody ordered; as with the router, 1 when a
    signal ended it, or it never began.
    """
    status: Record = {key: WORDS[view.state]}
    if view.state is State.FAILED or (view.state is State.STOPPED and view.error is not None):
        code = 1 if view.exit_code is None else view.exit_code
        status |= {"exit_code": code, "failed": True}
    elif view.state is State.STOPPED and key == "status":
        status |= {"exit_code": 0}
    return status


def _as_routers(record: Record, views: Mapping[str, ModelView]) -> Record:
    """Return one of our records with the router's keys beside ours."""
    said: Mapping[str, Any] = record["meta"]["llamaswap"]
    view = views.get(said["modelID"] if said["type"] == "alias" else record["id"])
    aliases: Iterable[str] = said.get("aliases", ())
    text = {"input_modalities": ["text"], "output_modalities": ["text"]}
    return {
        **record,
        "aliases": list(aliases),
        "tags": [],
        "status": status_of(view) if view else record["status"],
        "architecture": text | record.get("architecture", {}),
        "source": "config",
        "can_remove": False,
    }
