"""`POST /api/handover`: the proxy ends, and leaves its models to the next one."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from llmsnap.web.envelope import json_answer


class HandoverRoute:
    """Has `begin` called, which raises Conflict where nothing can be left."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin

    def routes(self) -> list[web.RouteDef]:
        """Return the route to mount."""
        return [web.post("/api/handover", self.hand_over)]

    async def hand_over(self, request: web.Request) -> web.Response:
        """Begin, and answer before it is done: the proxy isn't there any more then."""
        self._begin()
        return json_answer({"msg": "answers under way are ended first, then models are left"})
