"""`/api/hardware`: what the machine is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aiohttp import web

from llmsnap.telemetry.hardware import cpuinfo, hardware
from llmsnap.telemetry.metrics import Device
from llmsnap.web.envelope import json_answer


class HardwareRoute:
    """Shows processor, memory and GPUs. `devices` are those that were seen last."""

    def __init__(self, devices: Callable[[], Iterable[Device]]) -> None:
        self._devices = devices

    def routes(self) -> list[web.RouteDef]:
        """Return the route to mount."""
        return [web.get("/api/hardware", self.show)]

    async def show(self, _: web.Request) -> web.Response:
        """Say what there is."""
        processors = await asyncio.to_thread(cpuinfo)
        return json_answer(hardware(self._devices(), processors))
