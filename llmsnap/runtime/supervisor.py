"""The asyncio shell around the scheduler, as others see it: models are lent, shown, and ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import (
    Adopted,
    Event,
    Found,
    KeepRequested,
    ModelDeaf,
    ModelView,
    Reconfigured,
    ShutdownRequested,
    SleepRequested,
    UnloadRequested,
)
from llmsnap.core.slot import DOWN, SLUMBER
from llmsnap.errors import (
    Conflict,
    LlmsnapError,
    ModelNotFound,
    UpstreamLost,
)
from llmsnap.runtime.lacks import Looks
from llmsnap.runtime.lease import Lease
from llmsnap.runtime.prefetch import ReadAhead
from llmsnap.runtime.pump import Pump, Watcher
from llmsnap.runtime.release import Held
from llmsnap.runtime.rest import RestView
from llmsnap.runtime.roles import Decides, Runs
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.upstream import Upstream
from llmsnap.telemetry.recorder import Recorder

__all__ = ["Lease", "Supervisor", "Upstream"]

logger = logging.getLogger(__name__)

_LAST_KILL_S: Final = 5.0
_ABILITY_S: Final = 10.0
"""Longest wait until it is known how a model sleeps that has just started."""


class Supervisor:
    """Lends models to requests, and starts and ends their processes as the scheduler says.

    All of it happens between two awaits, so that there are no locks. Build it within the loop.
    Without `ahead`, nothing is read for a model before it starts; without `recorder`, nobody hears
    how models come and go; without `looks`, nobody sees that a start is bound to fail.
    """

    def __init__(
        self,
        scheduler: Decides,
        background: Background,
        ahead: ReadAhead | None = None,
        recorder: Recorder | None = None,
        looks: Looks | None = None,
    ) -> None:
        self._pump = Pump(
            scheduler, ahead or ReadAhead({}, scheduler.view), recorder or Recorder(), looks
        )
        self._scheduler = scheduler
        self._background = background
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._staying: frozenset[str] = frozenset()
        """Models whose processes are left to the next proxy."""

    def supervise(self, runners: Mapping[str, Runs], found: Sequence[Found] = ()) -> None:
        """Take charge of one runner a model; they report to `post`. Pinned models begin to load.

        Runners of models that were `found` have their processes already.
        """
        self._pump.know(runners)
        if found:
            self.post(Adopted(tuple(found)))
        self._pump.arm()

    def adopt(self, runners: Mapping[str, Runs], event: Reconfigured) -> None:
        """Go by other settings from now on, with `runners` of the models that they know.

        Models that they don't know keep theirs until nothing is left of them.
        """
        leaving = {name: runner for name, runner in self._runners.items() if self._has(name)}
        self._pump.know({**leaving, **runners})
        self.post(event)

    # ---- for requests --------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Hand one event to the scheduler and begin what it asks for.

        What is posted while that happens comes after it.
        """
        self._pump.post(event)

    def lease(
        self,
        model: str,
        *,
        limited: bool = True,
        is_helper: bool | None = None,
        is_use: bool = True,
    ) -> Lease:
        """Return a block within which `model` is up; see `Lease`.

        Not `limited`: an administrator's, which doesn't count against `concurrencyLimit`.
        `is_helper`: it puts nobody out who is in use; None: as the model's `class` says.
        Not `is_use`: it raises Conflict where the model isn't up, and leaves it as idle as it is.
        """
        return self._pump.tickets.draw(model, limited=limited, is_helper=is_helper, is_use=is_use)

    def stalled(self, model: str, generation: int) -> None:
        """End a process that is busy and silent; its model starts anew when next wanted."""
        view = self.view(model)
        if view.generation == generation and view.state is State.READY:
            text = "sent nothing for longer than its stallTimeout; its process is ended"
            error = UpstreamLost(f"model {model!r} {text}")
            logger.warning("%s (generation %d)", error, generation)
            self._runners[model].fail(error)

    def deaf(self, model: str, generation: int) -> None:
        """Replace a process that lives and takes no connections, once its answers have ended."""
        view = self.view(model)
        if view.generation == generation and view.state is State.READY and not view.unloading:
            logger.warning("model %s: takes no connections any more; it is replaced", model)
            self.post(ModelDeaf(model, generation))

    def distrust(self, model: str, generation: int, error: LlmsnapError) -> None:
        """End a process whose answers can't be trusted; its model starts anew when next wanted."""
        if self.view(model).generation == generation:
            self._runners[model].fail(error)

    # ---- for readers ---------------------------------------------------------------------------

    @property
    def fatal(self) -> asyncio.Future[Exception]:
        """Done when a bug made it give up: all is being ended, and the program should exit."""
        return self._pump.fatal

    @property
    def closing(self) -> bool:
        """Whether it was told to end, so that nothing starts any more."""
        return self._closing

    @property
    def released(self) -> Held | None:
        """That nothing is loaded for now; None: models may load."""
        found = self._scheduler.released
        return None if found is None else Held(found[0] - self._loop.time(), found[1])

    def views(self) -> list[ModelView]:
        """Return all models as they are now, by name."""
        return self._scheduler.views()

    def view(self, model: str) -> ModelView:
        """Return one model as it is now; raise ModelNotFound."""
        try:
            return self._scheduler.view(model)
        except KeyError:
            raise ModelNotFound(f"no model {model!r}") from None

    def upstream(self, model: str) -> Upstream | None:
        """Return where `model` listens; None unless it is ready."""
        ready = self.view(model).state is State.READY
        return self._runners[model].upstream if ready else None

    def pid(self, model: str) -> int | None:
        """Return the process of `model`, whatever its state; None when there is none."""
        runner = self._runners.get(model)
        return runner.pid if runner else None

    def rest(self, model: str) -> RestView:
        """Return how `model` sleeps; nothing is known of one that never was up."""
        return self._pump.rest(model)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call `callback(view after, state before)` soon after each change of a state.

        Returns what ends that.
        """
        self._pump.watchers.append(callback)

        def unwatch() -> None:
            with suppress(ValueError):
                self._pump.watchers.remove(callback)

        return unwatch

    async def next_event(self) -> None:
        """Return soon after anything that the scheduler is told; raise once all is given up."""
        await self._pump.next_event()

    # ---- for administrators --------------------------------------------------------------------

    async def load(self, model: str) -> None:
        """Return when `model` is up; raise what a request would get instead."""
        async with self.lease(model, limited=False):
            pass

    async def sleep(self, model: str) -> None:
        """Put idle `model` to sleep and return when it is; raise Conflict when it can't be."""
        view = self.view(model)
        if view.state in SLUMBER:
            return
        if view.state is not State.READY:
            raise Conflict(
                f"model {model!r} is {view.state}; only a ready model can be put to sleep"
            )
        if view.in_flight or view.waiting:
            raise Conflict(f"model {model!r} is busy; it can be put to sleep when it is idle")
        if (rest := await self._known_rest(model)).driver is None:
            told = "; ".join(f"{name}: {reason}" for name, reason in rest.refusals.items())
            why = told or "sleepMode is off, or how it sleeps isn't known yet"
            raise Conflict(f"model {model!r} can't sleep ({why})")
        self.post(SleepRequested(model))
        while self.view(model).state is State.SLEEPING:
            await self.next_event()
        after = self.view(model)
        if after.state is not State.ASLEEP:
            raise Conflict(after.error or f"model {model!r} is {after.state} and not asleep")

    async def _known_rest(self, model: str) -> RestView:
        """Return how `model` sleeps; wait for that while it is being found out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ABILITY_S):
                while self.rest(model).is_sought:
                    await self.next_event()
        return self.rest(model)

    def keep(self, model: str, keep_s: float) -> None:
        """Put idle `model` away `keep_s` after its last use, and not before, until the next use."""
        self.post(KeepRequested(model, keep_s))

    async def unload(self, model: str, timeout_s: float | None = None) -> None:
        """End `model` and return when its process is gone; waiting requests are refused.

        Running answers may go on for `timeout_s`, by default the model's own `unloadTimeout`.
        """
        self.view(model)
        if timeout_s is None:
            timeout_s = self._runners[model].unload_timeout_s
        self.post(UnloadRequested(model, timeout_s))
        await self._pump.gone(model)

    async def unload_all(self) -> None:
        """Unload every model, all at once."""
        models = [view.model for view in self.views() if view.state not in DOWN]
        await asyncio.gather(*(self.unload(model) for model in models))

    async def shutdown(self, grace_s: float, *, hand_over: bool = False) -> None:
        """Refuse what waits and comes, let answers end within the grace, end every child.

        To `hand_over` is to leave those that outlive this proxy to the next one. Returns when all
        others are gone. A second call skips what is left of the grace, of answers and children.
        """
        if self._closing:
            grace_s = 0
        runners = self._runners if hand_over and not self.fatal.done() else {}
        self._staying = frozenset(name for name, one in runners.items() if one.outlives_us)
        self.post(ShutdownRequested(grace_s, self._staying))
        if self._closing or self.fatal.done():
            self._end_all()
        self._closing = True
        patience_s = max((r.end_timeout_s for r in self._runners.values() if r.alive), default=0.0)
        if self._pump.tickets.open:  # else there are no answers to wait for
            patience_s += grace_s
        if not await self._all_gone(patience_s + _LAST_KILL_S):
            self._end_all()
            if not await self._all_gone(_LAST_KILL_S):
                pids = sorted(pid for r in self._ending() if (pid := r.pid))
                logger.error("left behind, because they don't end: pid %s", pids)
        for name in self._staying:
            self._runners[name].leave()
        self._pump.close()
        await self._background.aclose()

    # ---- inner ---------------------------------------------------------------------------------

    @property
    def _runners(self) -> Mapping[str, Runs]:
        return self._pump.runners

    def _end_all(self) -> None:
        for runner in self._ending():
            runner.stop(now=True)

    def _ending(self) -> list[Runs]:
        return [runner for name, runner in self._runners.items() if name not in self._staying]

    async def _all_gone(self, limit_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not self._is_quiet():
                    await self._pump.next_news()
        return self._is_quiet()

    def _has(self, model: str) -> bool:
        with suppress(ModelNotFound):
            return bool(self.view(model))
        return False

    def _is_quiet(self) -> bool:
        idle = self.fatal.done() or self._scheduler.idle
        return idle and not any(runner.alive for runner in self._ending())
