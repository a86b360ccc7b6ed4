"""`/api/events`: all that happens, as a stream of events in llama-swap's form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from aiohttp import web

from llmsnap.config.peers import peer_models
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView
from llmsnap.runtime.logs import LogBuffer, Logs, Subscription
from llmsnap.runtime.tasks import Background
from llmsnap.telemetry.events import Events, Follower, frame
from llmsnap.web.admin import PEER_STATES
from llmsnap.web.inflight import InFlight
from llmsnap.web.inflight_news import InFlightNews
from llmsnap.web.openai import description_of
from llmsnap.web.sse import event_head, send_events
from llmsnap.web.standins import StandIns

_SOURCES: Final = ("proxy", "upstream")


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the events come from."""

    config: Config
    views: Callable[[], Iterable[ModelView]]
    watch: Callable[[Callable[[ModelView, State], None]], object]
    standins: StandIns
    inflight: InFlight
    logs: Logs
    clock: Callable[[], float]
    """That of the requests."""


class EventRoutes:
    """Tells everybody who asks what is the case, and then what changes."""

    def __init__(self, events: Events, parts: Parts) -> None:
        self._events = events
        self._parts = parts
        self._requests = InFlightNews(parts.inflight, events, parts.clock)
        parts.watch(lambda *_: events.publish("modelStatus", self._models))
        parts.standins.watch(self._profile_changed)

    def adopt(self, config: Config) -> None:
        """Go by another configuration from now on, and tell of its models."""
        self._parts = replace(self._parts, config=config)
        self._events.publish("modelStatus", self._models)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [web.get("/api/events", self.stream)]

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Send events until the client leaves, or the proxy ends; with `no-logs`, no logs."""
        if request.method == "HEAD":
            return event_head()
        async with self._followed(() if "no-logs" in request.query else _SOURCES) as follower:
            return await send_events(request, follower)

    @asynccontextmanager
    async def _followed(self, sources: Collection[str]) -> AsyncIterator[Follower]:
        """Yield a follower who has been told all that is the case now."""
        background = Background()
        requests = self._requests.snapshot()
        follower = self._events.follow()
        readers = {name: self._log(name).subscribe() for name in sources}
        try:
            # Nothing awaits between the snapshot and this: no gap, and nothing twice.
            for message in self._greeting(sources, requests):
                follower.put(message)
            for name, reader in readers.items():
                background.spawn(_tell_log(name, reader, follower), name=f"events: {name} log")
            yield follower
        finally:
            follower.close()
            for reader in readers.values():
                reader.close()
            await background.aclose()

    def _greeting(self, sources: Iterable[str], requests: list[dict[str, Any]]) -> Iterable[bytes]:
        for name in sources:
            yield frame("logData", _log_data(name, self._log(name).history()))
        yield frame("modelStatus", self._models())
        session_id = list(self._parts.config.ui.activity.session_id)
        yield frame("uiConfig", {"activity": {"session_id": session_id}})
        yield frame("profileChanged", {"active": self._parts.standins.active})
        yield frame("inflight", {"operation": "snapshot", "requests": requests})

    def _profile_changed(self) -> None:
        self._events.publish("profileChanged", lambda: {"active": self._parts.standins.active})
        self._events.publish("modelStatus", self._models)

    def _log(self, name: str) -> LogBuffer:
        logs = self._parts.logs
        return logs.proxy if name == "proxy" else logs.upstream

    def _models(self) -> list[dict[str, Any]]:
        config = self._parts.config
        local = [
            _local_model(view, config.models.get(view.model) or ModelConfig(unlisted=True))
            for view in sorted(self._parts.views(), key=lambda view: view.model)
        ]
        return [*local, *(_peers_model(name, one.peer) for name, one in _peers(config))]


async def _tell_log(name: str, reader: Subscription, follower: Follower) -> None:
    """Pass on what is written to a log; at its end the proxy ends."""
    async for data in reader:
        follower.put(frame("logData", _log_data(name, data)))
    follower.close()


def _log_data(source: str, data: bytes) -> dict[str, str]:
    return {"source": source, "data": data.decode("utf-8", "replace")}


def _peers(config: Config) -> Iterable[tuple[str, Any]]:
    return sorted(peer_models(config.peers).items())


def _local_model(view: ModelView, model: ModelConfig) -> dict[str, Any]:
    said = description_of(model)
    state = "stopped" if view.state is State.FAILED else PEER_STATES.get(view.state, view.state)
    entry = {
        "id": view.model,
        "name": model.name,
        "description": model.description,
        "state": state,
        "unlisted": model.unlisted,
        "peerID": "",
    }
    if model.aliases:
        entry["aliases"] = list(model.aliases)
    return entry | {key: said[key] for key in ("capabilities", "context_length") if key in said}


def _peers_model(name: str, peer: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": "",
        "description": "",
        "state": "",
        "unlisted": False,
        "peerID": peer,
    }
