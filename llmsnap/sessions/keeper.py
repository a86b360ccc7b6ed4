"""All models' conversations: when they are saved, and who asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from llmsnap.sessions.desk import Desk, Process, Shared, Subject

IDLE_S: Final = 10.0
"""After the last answer, before a snapshot is made."""
BEFORE_STOP_S: Final = 10.0
"""How long a stop waits for its conversations to be saved."""
_SWEEP_S: Final = 3600.0


class Spawn(Protocol):
    """Runs something beside."""

    def __call__(self, coro: Coroutine[Any, Any, None], *, name: str) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """When something is saved besides before stops."""

    snapshots: bool = True
    """Whether models are saved when they are idle."""
    idle_s: float = IDLE_S


class Keeper:
    """Knows one desk a model. Build it within the loop.

    `is_up(model, generation)` says whether that process is up and awake now: one that sleeps
    doesn't answer.
    """

    def __init__(
        self,
        shared: Shared,
        habits: Habits,
        *,
        spawn: Spawn,
        is_up: Callable[[str, int], bool],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._shared = shared
        self._habits = habits
        self._spawn = spawn
        self._is_up = is_up
        self._desks: dict[str, Desk] = {}
        self._used_at: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def desk(self, model: str) -> Desk | None:
        """Return what keeps the conversations of `model`; None: none of it was up yet."""
        return self._desks.get(model)

    def refusals(self) -> dict[str, str]:
        """Return why nothing is saved of some models, by their names."""
        return {model: desk.refusal for model, desk in self._desks.items() if desk.refusal}

    def ready(self, process: Process, subject: Subject) -> None:
        """Take in that `process` is up; no request of ours has gone to it yet."""
        model = process.model
        if model not in self._desks:
            self._desks[model] = Desk(model, self._shared)
        self._desks[model].meet(process, subject)

    def took(self, records: Iterable[Any]) -> None:
        """Take in the requests that have ended, with what they say of their tokens."""
        for record in records:
            desk = self._desks.get(record.model)
            if desk is not None and desk.answered(record):
                self._used_at[record.model] = self._loop.time()
                self._see_to(record.model, desk)

    async def before_stop(self, process: Process) -> None:
        """Save what a process holds that is about to be ended; takes no longer than it may."""
        desk = self._desks.get(process.model)
        if desk is not None:
            await desk.save(process, least_new=1, limit_s=BEFORE_STOP_S)

    async def run(self) -> None:
        """Tidy up every hour."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            await self._shared.vault.load()

    async def aclose(self) -> None:
        """Save no more."""
        for timer in self._timers.values():
            timer.cancel()
        await self._shared.slots.aclose()

    def _see_to(self, model: str, desk: Desk) -> None:
        """Arm the timer of an idle model; delete what turned out to be useless."""
        if names := desk.worthless():
            self._spawn(self._shared.vault.delete(names), name=f"{model} forgets")
        if self._habits.snapshots and not desk.refusal and model not in self._timers:
            self._arm(model, self._habits.idle_s)

    def _arm(self, model: str, after_s: float) -> None:
        self._timers[model] = self._loop.call_later(after_s, self._ring, model)

    def _ring(self, model: str) -> None:
        del self._timers[model]
        desk, idle_s = self._desks[model], self._habits.idle_s
        left_s = self._used_at[model] + idle_s - self._loop.time()
        process = desk.process
        if process is None or not self._is_up(model, process.generation):
            return  # what sleeps keeps its cache; what was stopped was saved before
        if desk.is_serving or left_s > 0:
            self._arm(model, max(left_s, idle_s / 10))
            return
        self._spawn(self._snapshot(desk, process), name=f"{model} is saved")

    async def _snapshot(self, desk: Desk, process: Process) -> None:
        await desk.save(process, least_new=desk.min_tokens, limit_s=BEFORE_STOP_S)
