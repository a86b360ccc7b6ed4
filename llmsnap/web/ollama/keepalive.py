"""`keep_alive`: how long a model stays awake after a request, as Ollama's clients say it."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView
from llmsnap.errors import Conflict, LlmsnapError
from llmsnap.runtime.tasks import Background

logger = logging.getLogger(__name__)


class Rests(Protocol):
    """Who puts models to sleep, or stops them."""

    def view(self, model: str) -> ModelView: ...

    async def sleep(self, model: str) -> None: ...

    async def unload(self, model: str, timeout_s: float | None = None) -> None: ...


class KeepAlive:
    """Puts models to sleep earlier than their own settings would, or stops those that can't sleep.

    It never keeps one longer, and puts none away that somebody else uses.
    """

    def __init__(self, fleet: Rests) -> None:
        self._fleet = fleet
        self._background = Background()
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._until: dict[str, float] = {}

    def begin(self, model: str) -> None:
        """Forget what was said of `model` before: it is used again."""
        self._until.pop(model, None)
        if (waiting := self._waiting.pop(model, None)) is not None:
            waiting.cancel()

    def end(self, model: str, keep_s: float) -> None:
        """Put `model` away once `keep_s` seconds have passed."""
        self.begin(model)
        self._until[model] = self._loop.time() + keep_s
        name = f"keep {model} alive"
        self._waiting[model] = self._background.spawn(self._put_away(model, keep_s), name=name)

    def left_s(self, model: str) -> float | None:
        """Return how long `model` will still be kept; None: nobody has said."""
        until = self._until.get(model)
        return None if until is None else max(0.0, until - self._loop.time())

    async def aclose(self) -> None:
        """Leave all models as they are."""
        await self._background.aclose()

    async def _put_away(self, model: str, keep_s: float) -> None:
        try:
            used_at = self._fleet.view(model).used_at
            await asyncio.sleep(keep_s)
            view = self._fleet.view(model)
            is_used = view.in_flight or view.waiting or (keep_s and view.used_at != used_at)
            if view.state is State.READY and not view.pinned and not is_used:
                await self._rest(model)
        except LlmsnapError as error:
            logger.warning("model %s, which keep_alive says is to go: %s", model, error)
        finally:
            if self._waiting.get(model) is asyncio.current_task():
                del self._waiting[model]
                self._until.pop(model, None)

    async def _rest(self, model: str) -> None:
        try:
            await self._fleet.sleep(model)
        except Conflict:
            await self._fleet.unload(model)
