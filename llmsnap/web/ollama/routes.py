"""`/api/chat`, `/api/generate` and the other paths of Ollama's API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from math import inf
from time import monotonic
from typing import Any, Final, Protocol

import msgspec
from aiohttp import HttpVersion11, hdrs, web

from llmsnap.config.schema import Config
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView
from llmsnap.errors import BadRequest, Forbidden, LlmsnapError, ModelNotFound, NotFound
from llmsnap.web.admin import Fleet
from llmsnap.web.body import HeldBody
from llmsnap.web.bridge import AiohttpClient, relayed
from llmsnap.web.devices import Memory
from llmsnap.web.envelope import json_answer
from llmsnap.web.gate import STRANGER, is_strangers
from llmsnap.web.head import CommonHead, Fields, Head
from llmsnap.web.ollama import answers, listing
from llmsnap.web.ollama import requests as asked
from llmsnap.web.ollama.answers import Form
from llmsnap.web.ollama.events import Lines
from llmsnap.web.ollama.outlet import TranslatingOutlet
from llmsnap.web.outbox import Outbox
from llmsnap.web.outlet import Outlet
from llmsnap.web.standins import StandIns

Body = dict[str, Any]
Answering = Callable[[Any, web.Request], Awaitable[web.StreamResponse]]

_CHAT: Final = "/v1/chat/completions"
_COMPLETIONS: Final = "/v1/completions"
_EMBEDDINGS: Final = "/v1/embeddings"
_OURS: Final = frozenset(
    {
        *(b"content-type", b"content-length", b"transfer-encoding", b"content-encoding"),
        *(b"accept", b"accept-encoding", b"connection", b"expect", b"upgrade"),
    }
)
"""Headers of the client's request that aren't true of the one that is made of it."""
_NO_FORM: Final = Form("", False, listing.now)
"""Of answers that aren't streams."""


class Serves(Protocol):
    """The hot path."""

    @property
    def standins(self) -> StandIns: ...

    @property
    def names(self) -> Mapping[str, str]: ...

    @property
    def outbox(self) -> Outbox: ...

    async def serve(self, request: Head, body: HeldBody, outlet: Outlet) -> None: ...


def _as_ollama(answer: Answering) -> Answering:
    """Have `answer` say what is wrong as Ollama does: a text under `error`."""

    @wraps(answer)
    async def answering(self: OllamaRoutes, request: web.Request) -> web.StreamResponse:
        if not self.is_on:
            raise NotFound("Ollama's API is off; set ollamaApi: true in the configuration")
        try:
            return await answer(self, request)
        except LlmsnapError as error:
            return json_answer({"error": error.message}, status=error.status)

    return answering


class OllamaRoutes:
    """Answers Ollama's clients, over the same hot path as everybody's."""

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        proxy: Serves,
        clock: Callable[[], float],
        memory: Memory | None = None,
    ) -> None:
        """`clock` is the one that the views' times are on."""
        self.is_on = False
        self._fleet = fleet
        self._proxy = proxy
        self._clock = clock
        self._memory = memory
        self._since = listing.now()
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        """Go by another configuration from now on."""
        self._config = config
        self.is_on = config.ollama_api

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/api/tags", self.tags),
            web.get("/api/ps", self.ps),
            web.post("/api/show", self.show),
            web.post("/api/chat", self.chat),
            web.post("/api/generate", self.generate),
            web.post("/api/embed", self.embed),
            web.post("/api/embeddings", self.embeddings),
        ]

    @_as_ollama
    async def tags(self, _: web.Request) -> web.StreamResponse:
        """List the models."""
        listed = [self._tag(id_) for id_, one in self._config.models.items() if not one.unlisted]
        return json_answer({"models": listed})

    @_as_ollama
    async def ps(self, _: web.Request) -> web.StreamResponse:
        """List the models that are awake."""
        awake = [
            view
            for view in self._fleet.views()
            if view.state is State.READY and view.model in self._config.models
        ]
        return json_answer({"models": [self._running(view) for view in awake]})

    @_as_ollama
    async def show(self, request: web.Request) -> web.StreamResponse:
        """Describe a model."""
        id_ = self._local(self._named(await self._body(request)))
        return json_answer(listing.shown_of(id_, self._config.models[id_], since=self._since))

    @_as_ollama
    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer a chat; one without messages loads or unloads the model."""
        body = self._named(await self._body(request))
        form = Form(body["model"], True, listing.now)
        if not body.get("messages"):
            return await self._order(request, body, form)
        return await self._generate(request, body, _CHAT, asked.chat_request(body), form)

    @_as_ollama
    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Answer a prompt; one that is empty loads or unloads the model."""
        body = self._named(await self._body(request))
        form = Form(body["model"], False, listing.now)
        if body.get("suffix"):
            raise BadRequest("`suffix` isn't supported here; ask /infill of the model's server")
        if not body.get("prompt"):
            return await self._order(request, body, form)
        if body.get("raw"):
            return await self._generate(request, body, _COMPLETIONS, asked.raw_request(body), form)
        return await self._generate(request, body, _CHAT, asked.generate_request(body), form)

    @_as_ollama
    async def embed(self, request: web.Request) -> web.StreamResponse:
        """Answer with a vector for each text."""
        body, lines = self._named(await self._body(request)), _lines(_NO_FORM)

        def whole(said: answers.Said) -> Body:
            total_s, name = lines.elapsed_s(), body["model"]
            return answers.embeddings_answer(said, name, total_s=total_s, load_s=lines.load_s)

        wanted = asked.embed_request(body, "input")
        return await self._ask(request, body, _EMBEDDINGS, wanted, lines, whole)

    @_as_ollama
    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        """Answer with one vector, as older clients expect it."""
        body = self._named(await self._body(request))
        wanted = asked.embed_request(body, "prompt")
        lines = _lines(_NO_FORM)
        return await self._ask(request, body, _EMBEDDINGS, wanted, lines, answers.embedding_answer)

    async def _generate(
        self, request: web.Request, body: Body, path: str, wanted: Body, form: Form
    ) -> web.StreamResponse:
        lines = _lines(form)

        def whole(said: answers.Said) -> Body:
            total_s = lines.elapsed_s()
            return answers.whole_answer(said, form, total_s=total_s, load_s=lines.load_s)

        return await self._ask(request, body, path, wanted, lines, whole)

    async def _ask(
        self,
        request: web.Request,
        body: Body,
        path: str,
        wanted: Body,
        lines: Lines,
        whole: Callable[[Any], Any],
    ) -> web.StreamResponse:
        """Serve `wanted` at `path` in place of what the client sent, and translate the answer."""
        keep_s = _keep_s(request, body)
        model = self._proxy.names.get(body["model"], "")
        modern = request.version >= HttpVersion11
        outlet = TranslatingOutlet(
            AiohttpClient(request),
            self._proxy.outbox,
            lines,
            whole,
            keep_alive=modern and request.keep_alive,
            chunks_allowed=modern,
        )
        held = HeldBody.of(msgspec.json.encode(wanted))
        answer = await relayed(
            request, outlet, self._proxy.serve(_head(request, path), held, outlet)
        )
        if keep_s is not None and model in self._config.models:
            self._fleet.keep(model, keep_s)
        return answer

    async def _order(self, request: web.Request, body: Body, form: Form) -> web.StreamResponse:
        """Load a model without asking it anything, or put it away with `keep_alive: 0`."""
        keep_s, model = _keep_s(request, body), self._local(body)
        if keep_s == 0:
            self._fleet.keep(model, 0)
            return json_answer(form.last("unload"))
        async with self._fleet.lease(model, limited=False):
            pass
        if keep_s is not None:
            self._fleet.keep(model, keep_s)
        return json_answer(form.last("load"))

    async def _body(self, request: web.Request) -> Body:
        """Return the body of a request, whatever its type is said to be. Raises BadRequest."""
        held = HeldBody.of_request(request, self._config.max_body_bytes)
        try:
            return msgspec.json.decode(await held.whole(), type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRequest(f"the body isn't a JSON object: {error}") from None
        finally:
            held.close()

    def _named(self, body: Body) -> Body:
        """Return `body` with a `model` that is known here; `:latest` may be left out or not."""
        name = body.get("model") or body.get("name")
        if not isinstance(name, str):
            raise BadRequest("the request names no model; put its name into `model`")
        known = self._proxy.names.keys() | self._proxy.standins.names
        for form in (name, name.removesuffix(":latest"), f"{name}:latest"):
            if form in known:
                return {**body, "model": form}
        raise ModelNotFound(f"model {name!r} not found; see /api/tags")

    def _local(self, body: Body) -> str:
        """Return the id of the model of this machine that `body` names."""
        names = self._proxy.standins.pinned_names(self._config.names())
        try:
            return names[body["model"]]
        except KeyError:
            raise ModelNotFound(f"model {body['model']!r} isn't one of this machine's") from None

    def _tag(self, id_: str) -> Body:
        model = self._config.models[id_]
        size = sum(self._memory.figure(id_).bytes.values()) if self._memory else 0
        return listing.tag_of(id_, id_, model, size=size, since=self._since)

    def _running(self, view: ModelView) -> Body:
        id_, model = view.model, self._config.models[view.model]
        idle_s = 0.0
        if view.used_at is not None and not view.in_flight:
            idle_s = self._clock() - view.used_at
        keep_s = (model.ttl_s or inf) if view.kept_s is None else view.kept_s
        vram = sum(size for at, size in self._held(id_).items() if at.startswith("gpu"))
        left_s = max(0.0, keep_s - idle_s)
        return listing.running_of(self._tag(id_), model, vram=vram, left_s=left_s)

    def _held(self, model: str) -> Mapping[str, int]:
        return self._memory.held_by(model) if self._memory else {}


def _keep_s(request: web.Request, body: Body) -> float | None:
    """Return the seconds of `keep_alive`, which a page of another site has no say in.

    Raises Forbidden when such a page wants the model put away.
    """
    keep_s = asked.keep_alive_s(body)
    if keep_s is None or not is_strangers(request):
        return keep_s
    if keep_s == 0:
        raise Forbidden(STRANGER)
    return None


def _lines(form: Form) -> Lines:
    """Return what translates a stream, and counts the time from now on."""
    began = monotonic()
    return Lines(form, lambda: monotonic() - began)


def _head(request: web.Request, path: str) -> CommonHead:
    """Return the head of a request for `path` from the same client."""
    kept = {
        name.lower(): (name, value)
        for name, value in request.raw_headers
        if name.lower() not in _OURS
    }
    raw = (*kept.values(), (hdrs.CONTENT_TYPE.encode(), b"application/json"))
    return CommonHead(path, raw, Fields(raw), request.remote or "", True)
