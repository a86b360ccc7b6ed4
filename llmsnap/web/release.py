"""`/api/release` and `/api/resume`: all memory for something else, for a while."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import Any, Final

import msgspec
from aiohttp import web

from llmsnap.config.quantities import parse_duration
from llmsnap.core.messages import ReleaseRequested
from llmsnap.errors import BadRequest
from llmsnap.runtime.release import Held, Releases, release, resume
from llmsnap.web.body import HeldBody
from llmsnap.web.envelope import json_answer

_MOST_BYTES: Final = 16 * 1024

Time = float | str


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an order; nothing has to be there."""

    for_: Time | None = msgspec.field(default=None, name="for")
    timeout: Time | None = None
    refuse: bool = False


class ReleaseRoutes:
    """Has all memory given back, and taken again."""

    def __init__(self, supervisor: Releases, clock: Callable[[], float]) -> None:
        self._supervisor = supervisor
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.post("/api/release", self.release),
            web.post("/api/resume", self.resume),
        ]

    async def release(self, request: web.Request) -> web.Response:
        """Put everything to sleep, or stop it; answer when the memory is shown free.

        Raises BadRequest, and Conflict when it was taken again before that.
        """
        order, began = await _order(request), self._clock()
        views = await release(self._supervisor, order)
        return json_answer(
            {
                "released": held_entry(self._supervisor.released),
                "took_s": round(self._clock() - began, 3),
                "models": {view.model: view.state for view in views},
            }
        )

    async def resume(self, _: web.Request) -> web.Response:
        """Let models load again."""
        resume(self._supervisor)
        return json_answer({"released": None})


def held_entry(held: Held | None) -> dict[str, Any] | None:
    """Return what there is to say of a release; None when there is none."""
    if held is None:
        return None
    left_s = round(held.left_s, 3) if isfinite(held.left_s) else None
    return {"left_s": left_s, "refuse": held.refuses}


async def _order(request: web.Request) -> ReleaseRequested:
    text = await HeldBody.of_request(request, _MOST_BYTES).whole()
    try:
        wanted = msgspec.json.decode(text, type=_Wanted) if text else _Wanted()
        return ReleaseRequested(
            for_s=_seconds(wanted.for_),
            timeout_s=_seconds(wanted.timeout),
            refuse=wanted.refuse,
        )
    except (msgspec.DecodeError, ValueError) as error:
        like = '{"for": "10m", "timeout": "30s", "refuse": true}'
        raise BadRequest(f"the body must be like {like}: {error}") from None


def _seconds(time: Time | None) -> float:
    if time is None:
        return inf
    seconds = parse_duration(time) if isinstance(time, str) else time
    if not 0 <= seconds < inf:
        raise ValueError(f"{time!r} isn't a time from 0 up")
    return seconds
