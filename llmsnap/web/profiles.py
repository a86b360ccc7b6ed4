"""`/api/profiles`: which profiles there are, and which one is active."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from llmsnap.errors import BadRequest
from llmsnap.web.body import HeldBody
from llmsnap.web.envelope import json_answer
from llmsnap.web.standins import StandIns

_MOST_BYTES: Final = 16 * 1024


class _Wanted(msgspec.Struct):
    """The body of an order; `name` must be there, null for none."""

    name: str | None


class ProfileRoutes:
    """Shows and switches the active profile."""

    def __init__(self, standins: StandIns) -> None:
        self._standins = standins

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/api/profiles", self.show),
            web.put("/api/profiles/active", self.activate),
        ]

    async def show(self, _: web.Request) -> web.Response:
        """List the profiles by id, with their pins."""
        profiles = [
            {"id": id_, "description": profile.description, "pins": profile.pins}
            for id_, profile in sorted(self._standins.profiles.items())
        ]
        return json_answer({"active": self._standins.active, "profiles": profiles})

    async def activate(self, request: web.Request) -> web.Response:
        """Make one profile active, or none. Raises BadRequest, NotFound."""
        try:
            body = await HeldBody.of_request(request, _MOST_BYTES).whole()
            wanted = msgspec.json.decode(body, type=_Wanted)
        except msgspec.DecodeError as error:
            message = f'the body must be {{"name": "a profile"}}, or null for none ({error})'
            raise BadRequest(message) from None
        self._standins.activate(wanted.name or None)
        return json_answer({"active": self._standins.active})
