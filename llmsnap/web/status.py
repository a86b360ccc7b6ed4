"""`/api/status` and `/api/config/reload`: how the proxy itself is, and its configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from aiohttp import web

from llmsnap import __version__
from llmsnap.config.reload import Changes
from llmsnap.errors import BadRequest, ConfigError
from llmsnap.runtime.release import Held
from llmsnap.web.envelope import json_answer
from llmsnap.web.release import held_entry


class Reloads(Protocol):
    """Who reads the configuration again."""

    def status(self) -> dict[str, Any]: ...

    async def reload(self, why: str) -> Changes: ...


class StatusRoutes:
    """Shows how the proxy is, and has it read its configuration again."""

    def __init__(
        self,
        reloads: Reloads,
        released: Callable[[], Held | None],
        clock: Callable[[], float],
    ) -> None:
        self._reloads = reloads
        self._released = released
        self._clock = clock
        self._began = clock()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/api/status", self.show),
            web.post("/api/config/reload", self.reload),
        ]

    async def show(self, _: web.Request) -> web.Response:
        """Tell version, uptime, and what became of the configuration."""
        return json_answer(
            {
                "version": __version__,
                "uptime_s": round(self._clock() - self._began, 3),
                "released": held_entry(self._released()),
                "config": self._reloads.status(),
            }
        )

    async def reload(self, _: web.Request) -> web.Response:
        """Go by the files as they are now; tell what has changed.

        Raises BadRequest when there is a mistake in them, and Conflict when there are none.
        """
        try:
            changes = await self._reloads.reload("reload")
        except ConfigError as error:
            raise BadRequest(f"the configuration isn't taken: {error}") from None
        return json_answer(asdict(changes) | {"warnings": self._reloads.status()["warnings"]})
