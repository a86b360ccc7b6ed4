"""`/metrics`, for Prometheus and its like."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web


class Text(Protocol):
    """All figures, as a scraper reads them."""

    @property
    def content_type(self) -> str: ...

    @property
    def body(self) -> bytes: ...


class Exposes(Protocol):
    """Who makes it."""

    async def text(self, accept: str, *, zipped: bool) -> Text: ...


class MetricsRoute:
    """Answers scrapers; that touches no model."""

    def __init__(
        self,
        metrics: Exposes,
        monitor: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> None:
        """`monitor` answers with what the server of the model in the query says."""
        self._metrics = metrics
        self._monitor = monitor

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [web.get("/metrics", self.show)]

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Tell all figures, in the format and the coding that are asked for; or a model's own."""
        if request.query.get("model"):
            return await self._monitor(request)
        zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        text = await self._metrics.text(request.headers.get("Accept", ""), zipped=zipped)
        headers = {"Content-Type": text.content_type, "Vary": "Accept, Accept-Encoding"}
        if zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=text.body, headers=headers)
