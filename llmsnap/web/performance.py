"""`/api/performance`: how busy the machine was in the last hour."""

from __future__ import annotations

from aiohttp import web

from llmsnap.telemetry.performance import Performance
from llmsnap.web.activity import moment
from llmsnap.web.envelope import json_answer


class PerformanceRoutes:
    """Shows samples; there are none where `performance` is None: sampling is off."""

    def __init__(self, performance: Performance | None) -> None:
        self._performance = performance

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [web.get("/api/performance", self.show)]

    async def show(self, request: web.Request) -> web.Response:
        """List the samples, those after `?after=` where only they are wanted."""
        if self._performance is None:
            return json_answer({"enabled": False}, status=503)
        after = moment(request.query, "after")
        return json_answer(
            {
                "enabled": True,
                "sys_stats": self._performance.system(after),
                "gpu_stats": self._performance.gpus(after),
            }
        )
