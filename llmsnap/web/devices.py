"""What operators ask about memory: devices, and where the bytes of models are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from aiohttp import web

from llmsnap.memory.footprints import Figure
from llmsnap.runtime.devices import DeviceView
from llmsnap.web.envelope import json_answer


class Memory(Protocol):
    """What is known of memory."""

    @property
    def faults(self) -> Sequence[str]: ...

    @property
    def figure(self) -> Callable[[str], Figure]: ...

    def devices(self) -> list[DeviceView]: ...

    def held_by(self, model: str) -> Mapping[str, int]: ...

    async def pss_bytes(self) -> dict[str, int]: ...


def memory_entry(memory: Memory | None, model: str) -> dict[str, Any]:
    """Return what `/api/models` says of the memory of `model`."""
    if memory is None:
        return {}
    figure = memory.figure(model)
    footprint = {"bytes": figure.bytes, "source": figure.source, "why": figure.why}
    return {"bytes": memory.held_by(model), "footprint": footprint}


class DeviceRoutes:
    """The endpoint for devices. `clock` is the one that readings are stamped with."""

    def __init__(self, memory: Memory, clock: Callable[[], float]) -> None:
        self._memory = memory
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [web.get("/api/devices", self.devices)]

    async def devices(self, request: web.Request) -> web.Response:
        """List the devices; with `?pss`, what models hold of RAM without sharing, too."""
        answer: dict[str, Any] = {
            "devices": [self._entry(view) for view in self._memory.devices()],
            "faults": self._memory.faults,
        }
        if "pss" in request.query:
            answer["pss_bytes"] = await self._memory.pss_bytes()
        return json_answer(answer)

    def _entry(self, view: DeviceView) -> dict[str, Any]:
        reading = view.reading
        return {
            "device": reading.device,
            "name": reading.name,
            "uuid": reading.uuid,
            "state": view.freshness,
            "age_s": round(max(0.0, self._clock() - reading.taken_at), 3),
            "total_bytes": reading.total_bytes,
            "used_bytes": reading.used_bytes,
            "free_bytes": reading.free_bytes,
            "capacity_bytes": view.capacity_bytes,
            "reserve_bytes": view.reserve_bytes,
            "foreign_bytes": view.foreign_bytes,
            "models": view.models,
            **asdict(reading.vitals),
        }
