"""`/api/sessions`: which conversations are saved, deleting them, and whether that is of use."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from aiohttp import web

from llmsnap.config.schema import Config
from llmsnap.errors import BadRequest, NotFound
from llmsnap.sessions.catalogue import Saved
from llmsnap.sessions.trial import Found
from llmsnap.web.admin import known_model
from llmsnap.web.envelope import json_answer

_SHOWN: Final = 12
"""Characters of a file's name by which people call it."""


class Keeps(Protocol):
    """What is needed of those who keep conversations."""

    @property
    def fault(self) -> str: ...

    def saved(self) -> list[Saved]: ...

    def refusals(self) -> dict[str, str]: ...

    async def forget(self, names: Collection[str]) -> None: ...

    async def test(self, model: str) -> Found: ...


class SessionRoutes:
    """Shows and deletes saved conversations, of which only hashes are known."""

    def __init__(self, config: Config, keeps: Keeps) -> None:
        self._keeps = keeps
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        """Go by another configuration from now on."""
        self._names = config.names()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/api/sessions", self.show),
            web.delete("/api/sessions", self.wipe),
            web.delete("/api/sessions/{row}", self.remove),
            web.post("/api/sessions/test/{model:.+}", self.test),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """List them, the latest first; those of one model if it is asked for."""
        found = self._of(request.query.get("model", ""))
        answer = {
            "sessions": [_entry(saved) for saved in reversed(found)],
            "bytes": sum(saved.kept.size for saved in found),
            "refusals": self._keeps.refusals(),
            "fault": self._keeps.fault,
        }
        return json_answer(answer)

    async def wipe(self, request: web.Request) -> web.Response:
        """Delete all, or those of one model."""
        found = self._of(request.query.get("model", ""))
        await self._keeps.forget([saved.name for saved in found])
        return json_answer({"deleted": len(found)})

    async def remove(self, request: web.Request) -> web.Response:
        """Delete one, by what its id begins with. Raises NotFound and BadRequest."""
        start = request.match_info["row"]
        found = [saved.name for saved in self._keeps.saved() if saved.name.startswith(start)]
        if not found:
            raise NotFound(f"no conversation {start!r} is saved; see /api/sessions")
        if len(found) > 1:
            raise BadRequest(f"{len(found)} conversations begin with {start!r}; write more of it")
        await self._keeps.forget(found)
        return json_answer({"deleted": 1})

    async def test(self, request: web.Request) -> web.Response:
        """Try whether restores are of use to a model. Raises ModelNotFound and Conflict."""
        model = known_model(self._names, request.match_info["model"])
        began = asyncio.get_running_loop().time()
        found = await self._keeps.test(model)
        answer = {
            "model": model,
            "verdict": found.word or "unclear",
            "reason": found.reason,
            "tokens": found.tokens,
            "cached": found.cached,
            "bytes": found.bytes,
            "seconds": round(asyncio.get_running_loop().time() - began, 3),
        }
        return json_answer(answer)

    def _of(self, model: str) -> list[Saved]:
        return [saved for saved in self._keeps.saved() if model in ("", saved.model)]


def _entry(saved: Saved) -> dict[str, Any]:
    return {
        "id": saved.name[:_SHOWN],
        "model": saved.model,
        "tokens": saved.tokens,
        "messages": len(saved.marks),
        "bytes": saved.kept.size,
        "made": _text(saved.made),
        "used": _text(saved.used),
    }


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
