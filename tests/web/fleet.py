"""A fleet of models without processes: states are set by the test, orders are noted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from aiohttp import web

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView, Phases
from llmsnap.errors import LlmsnapError
from llmsnap.memory.footprints import Figure, Source
from llmsnap.runtime.devices import DeviceView
from llmsnap.runtime.logs import Logs
from llmsnap.runtime.rest import RestView
from llmsnap.sessions.catalogue import Saved
from llmsnap.sessions.trial import Found
from llmsnap.telemetry.captures import Captures
from llmsnap.telemetry.history import Query, Stats
from llmsnap.telemetry.metrics import Metrics, Sources
from llmsnap.telemetry.rows import MoveRow, RequestRow
from llmsnap.telemetry.tally import Tally
from llmsnap.web.activity import ActivityRoutes
from llmsnap.web.admin import Held
from llmsnap.web.body import HeldBody
from llmsnap.web.devices import Memory
from llmsnap.web.directory import all_names
from llmsnap.web.head import Head
from llmsnap.web.inflight import InFlight
from llmsnap.web.metrics import MetricsRoute
from llmsnap.web.outbox import Outbox
from llmsnap.web.outlet import Outlet
from llmsnap.web.performance import PerformanceRoutes
from llmsnap.web.server import build_app
from llmsnap.web.sessions import SessionRoutes
from llmsnap.web.standins import StandIns
from tests.helpers.views import view_of

NOW = 1000.0


@dataclass
class FakeLease:
    """What a holder sees."""

    phases: Phases


class FakeFleet:
    """Stands in for the supervisor."""

    def __init__(self, *models: str) -> None:
        self._views = {model: view_of(model) for model in sorted(models)}
        self.pids: dict[str, int] = {}
        self.rests: dict[str, RestView] = {}
        self.orders: list[tuple[str, str, float | None]] = []
        self.phases = Phases()
        self.refusal: LlmsnapError | None = None
        self._watchers: list[Callable[[ModelView, State], None]] = []

    def put(self, model: str, state: State, **changes: Any) -> None:
        """Put `model` into `state`; a live one gets a pid."""
        before = self._views[model].state
        self._views[model] = replace(self._views[model], state=state, **changes)
        for watcher in self._watchers:
            watcher(self._views[model], before)
        if state in (State.STOPPED, State.FAILED):
            self.pids.pop(model, None)
        else:
            self.pids.setdefault(model, 4000 + len(self.pids))

    def views(self) -> list[ModelView]:
        """All models, by name."""
        return list(self._views.values())

    def view(self, model: str) -> ModelView:
        """One model."""
        return self._views[model]

    def pid(self, model: str) -> int | None:
        """Its process."""
        return self.pids.get(model)

    def lease(self, model: str, *, limited: bool = True) -> AbstractAsyncContextManager[Held]:
        """Load `model` at once, or refuse."""
        return self._lease(model, limited)

    @asynccontextmanager
    async def _lease(self, model: str, limited: bool) -> AsyncIterator[Held]:
        self.orders.append(("lease" if limited else "load", model, None))
        if self.refusal is not None:
            raise self.refusal
        self.put(model, State.READY)
        yield FakeLease(self.phases)

    def rest(self, model: str) -> RestView:
        """How it sleeps."""
        return self.rests.get(model, RestView())

    async def sleep(self, model: str) -> None:
        """Put one model to sleep, or refuse."""
        self.orders.append(("sleep", model, None))
        if self.refusal is not None:
            raise self.refusal
        self.put(model, State.ASLEEP)

    async def unload(self, model: str, timeout_s: float | None = None) -> None:
        """Stop one model."""
        self.orders.append(("unload", model, timeout_s))
        self.put(model, State.STOPPED)

    def keep(self, model: str, keep_s: float) -> None:
        """Note how long one is to be kept; put it away at once if that is no time at all."""
        self.orders.append(("keep", model, keep_s))
        self.put(model, State.READY if keep_s else State.ASLEEP, kept_s=keep_s)

    def watch(self, callback: Callable[[ModelView, State], None]) -> Callable[[], None]:
        """Call `callback` after each change of a state."""
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    async def unload_all(self) -> None:
        """Stop every model."""
        self.orders.append(("unload", "*", None))
        for model in self._views:
            self.put(model, State.STOPPED)


class EchoProxy:
    """Stands in for the hot path: says which model and path it was given."""

    def __init__(self, config: Config, fleet: FakeFleet) -> None:
        self.standins = StandIns(config, fleet.view)
        self.inflight = InFlight()
        self.names = all_names(config)

    @cached_property
    def outbox(self) -> Outbox:
        """Where its answers go out."""
        return Outbox(asyncio.get_running_loop())

    async def serve(self, request: Head, body: HeldBody, outlet: Outlet) -> None:
        """Say that this would be inference."""
        said = f"infer {request.method} {request.path}".encode()
        lines = b"Content-Type: text/plain\r\n"
        outlet.open((200, b"OK"), lines, size=len(said), pieces=[said], complete=True)

    async def infer(self, request: web.Request) -> web.StreamResponse:
        """Say that this would be inference."""
        return web.Response(text=f"infer {request.method} {request.path}")

    async def monitor(self, request: web.Request) -> web.StreamResponse:
        """Say that this would be a look without a lease."""
        return web.Response(text=f"monitor {request.method} {request.path}")

    async def forward(
        self, request: web.Request, model: str, path: str, *, is_use: bool = True
    ) -> web.StreamResponse:
        """Say where this would go."""
        unnoticed = "" if is_use else " unnoticed"
        return web.Response(text=f"{model} {request.method} {path}{unnoticed}")


class NoHistory:
    """Stands in for what is known of the past."""

    async def requests(self, query: Query) -> tuple[list[RequestRow], int]:
        """None."""
        return [], 0

    async def told(self, query: Query) -> tuple[list[tuple[RequestRow, MoveRow | None]], int]:
        """None."""
        return [], 0

    async def moves(self, query: Query) -> tuple[list[MoveRow], int]:
        """None."""
        return [], 0

    async def request(self, id_: int) -> tuple[RequestRow, MoveRow | None] | None:
        """None."""
        return None

    async def stats(self, models: Sequence[str] = ()) -> Stats:
        """Nothing was done."""
        return Stats(
            total_requests=0,
            total_input_tokens=0,
            total_output_tokens=0,
            total_cache_tokens=0,
            prompt_histogram=None,
            gen_histogram=None,
        )


class NoSessions:
    """Stands in for saved conversations."""

    fault = ""

    def saved(self) -> list[Saved]:
        """None."""
        return []

    def refusals(self) -> dict[str, str]:
        """None."""
        return {}

    async def forget(self, names: Collection[str]) -> None:
        """There is nothing to delete."""

    async def test(self, model: str) -> Found:
        """It is of use."""
        return Found(word="used", reason="all were found", tokens=600, cached=600)


def front_of(
    config: Config,
    fleet: FakeFleet | None = None,
    *,
    logs: Logs | None = None,
    loopback: bool = True,
    memory: Memory | None = None,
    more: Collection[web.RouteDef] = (),
) -> web.Application:
    """The whole application over fakes; `more` routes in place of those that are optional."""
    fleet = fleet or FakeFleet(*config.models)
    return build_app(
        config,
        fleet,
        EchoProxy(config, fleet),
        logs or Logs(),
        loopback=loopback,
        clock=lambda: NOW,
        memory=memory,
        more=more or optional_routes(config),
    )


async def unmonitored(request: web.Request) -> web.StreamResponse:
    """Stands in for what passes monitors' questions on."""
    return web.Response(text=f"monitor {request.method} {request.path}")


def optional_routes(config: Config) -> list[web.RouteDef]:
    """Those of parts that aren't always there, over fakes."""
    return [
        *MetricsRoute(Metrics(Tally([]), Sources(views=list), lambda: NOW), unmonitored).routes(),
        *ActivityRoutes(NoHistory(), Captures(0)).routes(),
        *PerformanceRoutes(None).routes(),
        *SessionRoutes(config, NoSessions()).routes(),
    ]


def config_of(*names: str, **models: ModelConfig) -> Config:
    """A configuration of models without settings (`names`) and with (`models`)."""
    return Config(models={**{name: ModelConfig(cmd=f"serve {name}") for name in names}, **models})


class FakeMemory:
    """Stands in for what is known of memory."""

    faults: Sequence[str] = ()

    def __init__(self) -> None:
        self.views: list[DeviceView] = []
        self.held: dict[str, dict[str, int]] = {}
        self.figures: dict[str, Figure] = {}

    def figure(self, model: str) -> Figure:
        """What a model needs."""
        return self.figures.get(model, Figure(source=Source.UNKNOWN, why="never seen"))

    def devices(self) -> list[DeviceView]:
        """All devices."""
        return self.views

    def held_by(self, model: str) -> dict[str, int]:
        """Where the bytes of a model are."""
        return self.held.get(model, {})

    async def pss_bytes(self) -> dict[str, int]:
        """What models hold of RAM without sharing."""
        return {"a": 5}
