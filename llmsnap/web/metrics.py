"""`/metrics`, for Prometheus and its like."""

from __future__ import annotations

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

    def __init__(self, metrics: Exposes) -> None:
        self._metrics = metrics

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [web.get("/metrics", self.show)]

    async def show(self, request: web.Request) -> web.Response:
        """Tell all figures, in the format and the coding that are asked for."""
        zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        text = await self._metrics.text(request.headers.get("Accept", ""), zipped=zipped)
        headers = {"Content-Type": text.content_type, "Vary": "Accept, Accept-Encoding"}
        if zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=text.body, headers=headers)
