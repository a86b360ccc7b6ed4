"""`/logs` and `/logs/stream`: what the proxy and the models' servers print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from llmsnap.config.schema import Config
from llmsnap.errors import BadRequest
from llmsnap.runtime.logs import LogBuffer, Logs

_HEADERS: Final = {
    "Content-Type": "text/plain; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",
    "Cache-Control": "no-cache",
}


class LogRoutes:
    """Shows logs whole, or from now on until the reader leaves."""

    def __init__(self, logs: Logs, names: Mapping[str, str]) -> None:
        self._logs = logs
        self._names = names

    def adopt(self, config: Config) -> None:
        """Go by another configuration from now on."""
        self._names = config.names()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/logs", self.history),
            web.get("/logs/stream", self.stream),
            web.get("/logs/stream/{id:.*}", self.stream),
        ]

    async def history(self, request: web.Request) -> web.Response:
        """Show what the combined log keeps; browsers are led to the page that follows it."""
        if "text/html" in request.headers.get("Accept", ""):
            return web.Response(status=302, headers={"Location": "/ui/#logs"})
        return web.Response(body=self._logs.combined.history(), headers=_HEADERS)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Send the history (less with `no-history`), then what comes (not with `no-follow`)."""
        log = self._log(request.match_info.get("id", ""))
        response = web.StreamResponse(headers=_HEADERS)
        if request.method == "HEAD":
            return response
        # The reader is in before the history is read, and nothing awaits between: no gap.
        reader = log.subscribe()
        try:
            history = b"" if "no-history" in request.query else log.history()
            await response.prepare(request)
            await response.write(history)
            if "no-follow" not in request.query:
                async for chunk in reader:
                    await response.write(chunk)
        finally:
            reader.close()
        await response.write_eof()
        return response

    def _log(self, name: str) -> LogBuffer:
        match name:
            case "":
                return self._logs.combined
            case "proxy":
                return self._logs.proxy
            case "upstream":
                return self._logs.upstream
            case _ if name in self._names:
                return self._logs.model(self._names[name])
            case _:
                raise BadRequest(
                    f"no log is called {name!r}; there are proxy, upstream and one a model"
                )
