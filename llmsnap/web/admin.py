"""What operators ask and order: who runs, load, unload, health, version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import Any, Final, Protocol

from aiohttp import web

from llmsnap import __version__
from llmsnap.config.resolved import all_secrets
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.secrets import blank, blank_command
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView, Phases
from llmsnap.core.slot import DOWN
from llmsnap.errors import BadRequest, Conflict, ModelNotFound
from llmsnap.runtime.rest import RestView
from llmsnap.sleep.driver import Moved
from llmsnap.web.devices import DeviceRoutes, Memory, memory_entry
from llmsnap.web.envelope import json_answer
from llmsnap.web.neighbours import Neighbours
from llmsnap.web.ollama.listing import VERSION as OLLAMA

PEER_STATES: Final = {State.SLEEPING: "sleepPending", State.PAGING: "asleep"}
"""States that `/running` calls by the name that its users know."""

_MAY_WAKE: Final = frozenset(
    {State.SLEEPING, State.ASLEEP, State.PAGING, State.WAKING, State.READY}
)


class Held(Protocol):
    """A model that is ready and stays so for the length of a block."""

    @property
    def phases(self) -> Phases: ...


class Fleet(Protocol):
    """What the operators' endpoints need of the supervisor."""

    def views(self) -> list[ModelView]: ...

    def view(self, model: str) -> ModelView: ...

    def pid(self, model: str) -> int | None: ...

    def lease(self, model: str, *, limited: bool = True) -> AbstractAsyncContextManager[Held]: ...

    def rest(self, model: str) -> RestView: ...

    async def sleep(self, model: str) -> None: ...

    async def unload(self, model: str, timeout_s: float | None = None) -> None: ...

    async def unload_all(self) -> None: ...

    def watch(self, callback: Callable[[ModelView, State], None]) -> Callable[[], None]: ...

    def keep(self, model: str, keep_s: float) -> None: ...


class Admin:
    """The operators' endpoints. `clock` is the one that the views' times are on."""

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        clock: Callable[[], float],
        memory: Memory | None = None,
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._memory = memory
        self._models: dict[str, ModelConfig] = {}
        """Those that were taken out while they run, too."""
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        """Go by another configuration from now on."""
        self._models |= config.models
        self._names = config.names()
        self._version = f"{OLLAMA}+llmsnap.{__version__}" if config.ollama_api else __version__
        self._neighbours = Neighbours(config.peers)
        secrets = all_secrets(config)
        models = self._models.items()
        self._commands = {id_: blank(blank_command(model.cmd), secrets) for id_, model in models}
        self._proxies = {id_: blank(model.proxy, secrets) for id_, model in models}

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/health", self.health),
            web.get("/wol-health", self.health),
            web.get("/api/version", self.version),
            web.get("/running", self.running),
            web.get("/api/models", self.models),
            web.get("/unload", self.unload_all, allow_head=False),
            web.post("/api/models/unload", self.unload_all_json),
            web.post("/api/models/unload/{model:.+}", self.unload),
            web.post("/api/models/load/{model:.+}", self.load),
            web.post("/api/models/sleep/{model:.+}", self.sleep),
            web.post("/api/models/wake/{model:.+}", self.wake),
            *(DeviceRoutes(self._memory, self._clock).routes() if self._memory else ()),
        ]

    async def health(self, _: web.Request) -> web.Response:
        """Say that the proxy itself is up."""
        return web.Response(text="OK")

    async def version(self, _: web.Request) -> web.Response:
        """Say which llmsnap this is; Ollama's clients read there whose API they can count on."""
        return json_answer({"version": self._version, "commit": "", "build_date": ""})

    async def running(self, _: web.Request) -> web.Response:
        """List the models that have a process, as llama-swap does."""
        return json_answer({"running": [*self._running()]})

    def _running(self) -> Iterable[dict[str, Any]]:
        for view in self._fleet.views():
            if view.state in DOWN:
                continue
            model = self._models[view.model]
            yield {
                "model": view.model,
                "state": PEER_STATES.get(view.state, view.state),
                "cmd": self._commands[view.model],
                "proxy": self._proxies[view.model],
                "ttl": model.ttl_s,
                "name": model.name,
                "description": model.description,
            }

    async def models(self, request: web.Request) -> web.Response:
        """List every model with its state, its clients and its process; those of peers if asked."""
        answer: dict[str, Any] = {"models": [self._entry(view) for view in self._fleet.views()]}
        if request.query.get("peers", "0") not in ("", "0", "false"):
            answer["peers"] = await self._neighbours.entries()
        return json_answer(answer)

    def _entry(self, view: ModelView) -> dict[str, Any]:
        model = self._models[view.model]
        rest = self._fleet.rest(view.model)
        now = self._clock()
        return {
            "id": view.model,
            "state": view.state,
            "pid": self._fleet.pid(view.model),
            "generation": view.generation,
            "in_flight": view.in_flight,
            "waiting": view.waiting,
            "paused": view.paused,
            "pinned": view.pinned,
            "unloading": view.unloading,
            "aliases": model.aliases,
            "ttl": model.ttl_s,
            "name": model.name,
            "description": model.description,
            "unlisted": model.unlisted,
            "idle_s": _since(now, view.used_at),
            "ready_s": _since(now, view.ready_at),
            "round_trip_s": round(view.round_trip_s, 3),
            "back_s": round(view.back_s, 3),
            "need_bytes": view.need,
            **memory_entry(self._memory, view.model),
            "fails": view.fails,
            "retry_in_s": _until(now, view.retry_at),
            "error": view.error,
            "driver": rest.driver,
            "keeps_state": rest.keeps_state,
            "sleep_refusals": rest.refusals,
            "below": rest.below,
            "last_sleep": _moved(rest.slept),
            "last_page_out": _moved(rest.paged),
            "last_wake": _moved(rest.woken),
        }

    async def load(self, request: web.Request) -> web.Response:
        """Load one model; answer when it is ready, with what the wait was made of."""
        return await self._bring_up(self._model(request))

    async def wake(self, request: web.Request) -> web.Response:
        """Wake one model; answer as `load` does. Raises Conflict when it isn't asleep."""
        model = self._model(request)
        state = self._fleet.view(model).state
        if state not in _MAY_WAKE:
            raise Conflict(f"model {model!r} is {state} and not asleep; load it instead")
        return await self._bring_up(model)

    async def _bring_up(self, model: str) -> web.Response:
        async with self._fleet.lease(model, limited=False) as held:
            phases = asdict(held.phases) | {"total_s": held.phases.total_s}
            return self._order_done(model, {name: round(s, 6) for name, s in phases.items()})

    async def sleep(self, request: web.Request) -> web.Response:
        """Put one model to sleep; answer when it is. Raises Conflict when it can't be."""
        model = self._model(request)
        await self._fleet.sleep(model)
        slept = self._fleet.rest(model).slept
        return self._order_done(model, {"sleep_s": round(slept.seconds, 6)} if slept else {})

    def _order_done(self, model: str, phases: Mapping[str, float]) -> web.Response:
        answer = {
            "model": model,
            "state": self._fleet.view(model).state,
            "pid": self._fleet.pid(model),
            "driver": self._fleet.rest(model).driver,
            "phases": phases,
        }
        return json_answer(answer)

    async def unload(self, request: web.Request) -> web.Response:
        """Unload one model; answer when its process is gone."""
        await self._fleet.unload(self._model(request), _timeout_s(request))
        return web.Response(text="OK")

    async def unload_all(self, request: web.Request) -> web.Response:
        """Unload every model; answer when all processes are gone."""
        await self._unload_all(_timeout_s(request))
        return web.Response(text="OK")

    async def unload_all_json(self, request: web.Request) -> web.Response:
        """Do the same, and say so in JSON."""
        await self._unload_all(_timeout_s(request))
        return json_answer({"msg": "ok"})

    async def _unload_all(self, timeout_s: float | None) -> None:
        if timeout_s is None:
            await self._fleet.unload_all()
        else:
            models = [view.model for view in self._fleet.views()]
            await asyncio.gather(*(self._fleet.unload(model, timeout_s) for model in models))

    def _model(self, request: web.Request) -> str:
        return known_model(self._names, request.match_info["model"])


def known_model(names: Mapping[str, str], name: str) -> str:
    """Return the id of the model called `name`. Raises ModelNotFound."""
    try:
        return names[name]
    except KeyError:
        raise ModelNotFound(f"no model or alias is called {name!r}; see /v1/models") from None


def _timeout_s(request: web.Request) -> float | None:
    """Return how long running answers may go on, or None for each model's own setting."""
    text = request.query.get("timeout")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < 1e9:
        raise BadRequest(f"timeout must be seconds from 0 up, not {text!r}")
    return seconds


def _moved(moved: Moved | None) -> dict[str, Any] | None:
    if moved is None:
        return None
    return {"seconds": round(moved.seconds, 6), "bytes": moved.bytes}


def _since(now: float, moment: float | None) -> float | None:
    return None if moment is None else round(max(0.0, now - moment), 3)


def _until(now: float, moment: float | None) -> float | None:
    return None if moment is None or moment <= now else round(moment - now, 3)
