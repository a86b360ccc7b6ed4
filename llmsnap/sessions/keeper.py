"""All models' conversations: when they are saved, and who asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from llmsnap.sessions.desk import Desk
from llmsnap.sessions.insurance import insure
from llmsnap.sessions.subject import Process, Shared, Subject

IDLE_S: Final = 10.0
"""After the last answer, before a snapshot is made."""
BEFORE_STOP_S: Final = 10.0
"""How long a stop waits for its conversations to be saved."""
INTERVAL_S: Final = 60.0
"""Between two snapshots of a model that is in use."""
_SWEEP_S: Final = 3600.0


class Spawn(Protocol):
    """Runs something beside."""

    def __call__(self, coro: Coroutine[Any, Any, None], *, name: str) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """When something is saved besides before stops."""

    snapshots: Literal["off", "idle", "interval"] = "idle"
    """Whether models are saved when they are idle, and in between, too."""
    idle_s: float = IDLE_S
    interval_s: float = INTERVAL_S
    wakes_to_save: bool = False
    """Whether what sleeps and is to be stopped is woken, so that it can be saved."""


class Keeper:
    """Knows one desk a model. Build it within the loop.

    `is_up(model, generation)` says whether that process is up and awake now: one that sleeps
    doesn't answer; `is_awaited()`, whether somebody waits for any model. `test` tries whether
    restores are worth anything to a model, unless somebody wants something.
    """

    def __init__(
        self,
        shared: Shared,
        habits: Habits,
        *,
        spawn: Spawn,
        is_up: Callable[[str, int], bool],
        is_awaited: Callable[[], bool],
        test: Callable[[str], Awaitable[None]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._shared = shared
        self._habits = habits
        self._spawn = spawn
        self._is_up = is_up
        self._is_awaited = is_awaited
        self._test = test
        self._desks: dict[str, Desk] = {}
        self._used_at: dict[str, float] = {}
        self._kept_at: dict[str, float] = {}
        """When models that are in use were last saved, or began to be used."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def adopt(self, habits: Habits, min_tokens: int) -> None:
        """Go by other habits from now on."""
        self._habits = habits
        for desk in self._desks.values():
            desk.min_tokens = min_tokens

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
        self._note_use(model)

    def took(self, records: Iterable[Any]) -> None:
        """Take in the requests that have ended, with what they say of their tokens."""
        for record in records:
            desk = self._desks.get(record.model)
            if desk is not None and desk.answered(record):
                self._note_use(record.model)
                if names := desk.worthless():
                    self._spawn(self._shared.vault.delete(names), name=f"{record.model} forgets")

    async def before_stop(self, process: Process) -> None:
        """Save what a process holds that is about to be ended; takes no longer than it may."""
        desk = self._desks.get(process.model)
        if desk is not None:
            await desk.save(process, least_new=1, limit_s=BEFORE_STOP_S)

    async def before_sleep(self, process: Process, *, loses_cache: bool) -> None:
        """Save what a process holds that is about to sleep: all of it if its cache is lost then.

        One that keeps its cache is saved like an idle one: it may never wake again.
        """
        desk = self._desks.get(process.model)
        if desk is None:
            return
        if loses_cache:
            await desk.save(process, least_new=1, limit_s=BEFORE_STOP_S)
        elif self._habits.snapshots != "off" and not desk.is_serving:
            await insure(desk, process, self._is_awaited)

    def lost(self, process: Process) -> None:
        """Take in that `process` has slept and its cache is gone."""
        if (desk := self._desks.get(process.model)) is not None:
            desk.forget(process)

    def is_worth_waking(self, process: Process) -> bool:
        """Whether `process`, which sleeps and is to be ended, is to be woken and saved first."""
        desk = self._desks.get(process.model)
        return self._habits.wakes_to_save and desk is not None and desk.has_unsaved(process)

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

    def _note_use(self, model: str) -> None:
        """Have the model seen to once it is idle."""
        now = self._used_at[model] = self._loop.time()
        self._kept_at.setdefault(model, now)
        if model not in self._timers:
            self._arm(model, self._habits.idle_s)

    def _arm(self, model: str, after_s: float) -> None:
        self._timers[model] = self._loop.call_later(after_s, self._ring, model)

    def _ring(self, model: str) -> None:
        del self._timers[model]
        desk, habits, now = self._desks[model], self._habits, self._loop.time()
        process = desk.process
        if process is None or not self._is_up(model, process.generation):
            self._kept_at.pop(model, None)
            return  # what sleeps or was stopped has been saved before
        left_s = self._used_at[model] + habits.idle_s - now
        if not desk.is_serving and left_s <= 0:
            del self._kept_at[model]
            self._spawn(self._see_to_idle(desk, process), name=f"{model} is seen to")
            return
        if habits.snapshots == "interval" and now >= self._kept_at[model] + habits.interval_s:
            self._kept_at[model] = now
            self._spawn(self._snapshot(desk, process), name=f"{model} is saved")
        self._arm(model, max(left_s, habits.idle_s / 10))

    async def _see_to_idle(self, desk: Desk, process: Process) -> None:
        if self._habits.snapshots != "off":
            await self._snapshot(desk, process)
        if not await desk.is_settled():
            await self._test(process.model)

    async def _snapshot(self, desk: Desk, process: Process) -> None:
        await desk.save(process, least_new=desk.min_tokens, limit_s=BEFORE_STOP_S)
