"""How one generation of a model sleeps and wakes: by the driver that was found for its process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import AbilityChanged, ModelChanged
from llmsnap.errors import (
    LlmsnapError,
    SleepFailed,
    SleepRefused,
    UpstreamLost,
    WakeFailed,
    WakeRefused,
)
from llmsnap.runtime.conversations import Talks
from llmsnap.runtime.sayings import Sayings
from llmsnap.runtime.tasks import Background
from llmsnap.sleep.choose import Choice
from llmsnap.sleep.driver import Memo, Moved, SleepDriver, Supported, Target, Unsupported
from llmsnap.sleep.worth import Ways, better_stopped
from llmsnap.telemetry.contexts import Context

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 60.0
"""After a refusal: swap may be less full by then."""


class Chooses(Protocol):
    """Finds the way in which a model's process can sleep."""

    async def prepare(self) -> None:
        """Do what makes `choose` quick; to be called when a process starts."""
        ...

    async def choose(self, target: Target) -> Choice: ...

    async def take_over(self, driver: str, target: Target, memo: Memo) -> Choice:
        """Have `driver` take charge of a process that an earlier proxy put to sleep by it."""
        ...


class Records(Protocol):
    """Takes down how a process is, for the next proxy."""

    def __call__(
        self,
        *,
        state: Literal["ready", "moving", "asleep"],
        driver: str = "",
        memo: Memo | None = None,
    ) -> None: ...


def no_record(**_: object) -> None:
    """Take down nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestView:
    """How a model sleeps, for showing."""

    driver: str | None = None
    """Which driver it sleeps by; None: none does, or it isn't known yet."""
    is_sought: bool = False
    """Whether its driver is still being looked for."""
    keeps_state: bool = False
    """Whether its KV cache is there again when it wakes."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why the other drivers can't, by their names."""
    below: str = ""
    """What becomes of it when its tier is full; empty: not known, or nothing but a stop."""
    slept: Moved | None = None
    """What its last way to sleep moved."""
    paged: Moved | None = None
    """What was moved when it last left its tier for a lower one."""
    woken: Moved | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """What a start costs that a sleep saves."""

    took_s: float
    """What this one took, from launch to ready."""
    context: Callable[[str], Context]
    """What would have to be computed again, by model."""


class _BetterStopped(SleepRefused):
    """A stop and a start bring it back quicker: nothing is wrong."""


class Rest:
    """Puts one process to sleep and wakes it."""

    def __init__(
        self,
        target: Target,
        chooser: Chooses,
        background: Background,
        report: Callable[[ModelChanged | AbilityChanged], None],
        *,
        start: Start,
        record: Records = no_record,
        talks: Talks | None = None,
        said: Sayings | None = None,
        asleep: Choice | None = None,
    ) -> None:
        """`asleep`: how it sleeps from the start."""
        self.view = RestView(is_sought=True)
        self.must_be_killed = False
        """Whether it sleeps, or is on its way, so that it can't obey a signal, nor tidy up."""
        self._target = target
        self._chooser = chooser
        self._background = background
        self._report = report
        self._start = start
        self._move: asyncio.Task[None] | None = None
        self._is_up = True
        """Whether it is neither asleep nor on its way there or back."""
        self._is_stale = False
        """Whether the way to sleep is to be found anew once it is up."""
        self._found = Supported(tier="", tier_bytes=0)
        self._record = record
        self._talks = talks
        self._said = said or Sayings(target.model)
        self._is_touched = False
        """Whether a driver has begun to put it to sleep, and it isn't awake again."""
        self._has_slept = False
        """Whether it sleeps by its driver, or did until just now."""
        self._choice = self._find(asleep)
        if asleep is not None and asleep.driver is not None:
            self._is_up, self.must_be_killed = False, asleep.driver.kill_only
            self._is_touched = self._has_slept = True

    def adopt(self, chooser: Chooses) -> None:
        """Have another one find the way to sleep; what sleeps wakes by the way that it went."""
        if chooser == self._chooser:
            return
        self._chooser = chooser
        if self._is_up:
            self._choice.cancel()
            self._find_anew()
        else:
            self._is_stale = True

    def sleep(self, failed: Callable[[LlmsnapError], None], *, anyway: bool = True) -> None:
        """Begin to put the process to sleep: SLEPT or WOKEN is reported, or `failed` is called.

        Not `anyway`: only if it comes back quicker so than by a stop and a start.
        """
        self._begin(self._sleep if anyway else self._sleep_if_worth_it, Trigger.SLEPT, failed)

    def page_out(self, failed: Callable[[LlmsnapError], None]) -> None:
        """Begin to page out what sleeps: PAGED or SLEPT is reported, or `failed` is called."""
        self._begin(self._page_out, Trigger.PAGED, failed)

    def wake(self, failed: Callable[[LlmsnapError], None]) -> None:
        """Begin to wake the process: WOKEN or SLEPT is reported, or `failed` is called."""
        self._begin(self._wake, Trigger.WOKEN, failed)

    def stay_up(self) -> bool:
        """Give up a way to sleep that hasn't begun; say whether the process is awake, and stays so.

        For whoever is about to end it: nothing is reported.
        """
        if not self._is_touched and self._move is not None:
            self._move.cancel()
        return not self._is_touched

    async def wake_once_more(self, limit_s: float) -> bool:
        """Wake the process, which is about to be ended; say whether it is awake."""
        if not self._has_slept or not self._choice.done() or self._choice.cancelled():
            return False
        if self._move is not None:
            self._move.cancel()
        driver = self._choice.result()
        if driver is None:
            return False
        try:
            async with asyncio.timeout(limit_s):
                await self._wake_by(driver)
        except (LlmsnapError, OSError) as error:  # a TimeoutError is one
            told = str(error) or f"not within {limit_s:g} s"
            logger.warning("model %s: isn't woken to be saved: %s", self._target.model, told)
            return False
        return True

    def close(self) -> None:
        """Have done with it: the process is being ended."""
        for task in (self._choice, self._move):
            if task is not None:
                task.cancel()

    def _find_anew(self) -> None:
        """Find out again how it sleeps; what counted before isn't shown meanwhile."""
        self.view = replace(self.view, driver=None, keeps_state=False, refusals={}, is_sought=True)
        self._choice = self._find()

    def _find(
        self, choice: Choice | None = None, *, after_s: float = 0.0
    ) -> asyncio.Task[SleepDriver | None]:
        name = f"{self._target.model}#{self._target.generation} finds how to sleep"
        return self._background.spawn(self._choose(choice, after_s=after_s), name=name)

    async def _choose(
        self, choice: Choice | None = None, *, after_s: float = 0.0
    ) -> SleepDriver | None:
        model = self._target.model
        await asyncio.sleep(after_s)
        if choice is None:
            choice = await self._chooser.choose(self._target)
        driver, found, refusals = choice.driver, choice.supported, choice.refusals
        told = "; ".join(f"{name}: {reason}" for name, reason in refusals.items())
        told = f" ({told})" if told else ""
        if driver is None or found is None:
            self.view = RestView(refusals=refusals)
            self._report(AbilityChanged(model, can_sleep=False, can_pause=False))
            self._said.say("driver", f"can't sleep, so it is stopped instead{told}")
            return None
        self.view = RestView(driver=driver.name, keeps_state=driver.keeps_state, refusals=refusals)
        self._found = found
        self._report_ability()
        self._said.say("driver", f"sleeps by {driver.name}{told}")
        return driver

    async def _sleep_if_worth_it(self, driver: SleepDriver) -> None:
        if why := self._better_stopped(driver):
            raise _BetterStopped(why)
        await self._sleep(driver)

    def _better_stopped(self, driver: SleepDriver, *, more_s: float = 0.0) -> str:
        """Return why it should rather be stopped, if a wake takes `more_s` longer than usual."""
        wake_s = driver.wake_s(self._target)
        if wake_s is None and self.view.woken is not None:
            wake_s = self.view.woken.seconds
        context = self._start.context(self._target.model)
        ways = Ways(
            wake_s=None if wake_s is None else wake_s + more_s,
            start_s=self._start.took_s,
            lost_tokens=context.tokens if driver.keeps_state else 0,
            tokens_per_s=context.tokens_per_s,
        )
        return better_stopped(ways)

    async def _sleep(self, driver: SleepDriver) -> None:
        if self._talks is not None:
            await self._talks.before_sleep(loses_cache=not driver.keeps_state)
        self.must_be_killed, self._is_touched = driver.kill_only, True
        moved = await driver.sleep(self._target)
        self._has_slept = True
        self._record_asleep(driver)
        self.view = replace(self.view, slept=moved)

    async def _look_below(self, driver: SleepDriver) -> None:
        """Find out where a process that sleeps now could go if its tier were full."""
        if driver.below is None:
            return
        tier = self._found.tier
        verdict = await driver.below.probe(self._target)
        if isinstance(verdict, Supported):
            # Who wants its room waits for it to go, and who wants it back for it to come.
            more_s = driver.below.trip_s(verdict.tier_bytes)
            if more_s is not None and (why := self._better_stopped(driver, more_s=more_s)):
                verdict = Unsupported(f"by way of {verdict.tier} {why}")
        if isinstance(verdict, Supported):
            told = f"can be paged out from {tier} to {verdict.tier}"
            self._report_ability(verdict)
        else:
            told = f"can't leave {tier} but by a stop: {verdict.reason}"
            self._report_ability()
        self._said.say("below", told)
        self.view = replace(self.view, below=told)

    async def _page_out(self, driver: SleepDriver) -> None:
        if driver.below is None:
            raise SleepRefused("there is no way to do it")
        moved = await driver.below.page_out(self._target)
        self.view = replace(self.view, paged=moved)

    async def _wake(self, driver: SleepDriver) -> None:
        moved = await self._wake_by(driver)
        self._record(state="ready")
        self.view = replace(self.view, woken=moved)
        self._is_up = True
        if self._is_stale:
            self._is_stale = False
            self._find_anew()

    async def _wake_by(self, driver: SleepDriver) -> Moved:
        self._has_slept = False
        try:
            moved = await driver.wake(self._target)
        except WakeRefused:
            self._has_slept = True
            raise
        self.must_be_killed = self._is_touched = False
        if self._talks is not None and not driver.keeps_state:
            self._talks.lost()
        return moved

    def _begin(
        self,
        act: Callable[[SleepDriver], Awaitable[None]],
        done: Trigger,
        failed: Callable[[LlmsnapError], None],
    ) -> None:
        if self._move is not None:
            self._move.cancel()  # it looks below, or pages out: a wake needn't wait for either
        name = f"{self._target.model}#{self._target.generation} {done}"
        self._is_up = False
        self._move = self._background.spawn(self._moving(act, done, failed), name=name)

    async def _moving(
        self,
        act: Callable[[SleepDriver], Awaitable[None]],
        done: Trigger,
        failed: Callable[[LlmsnapError], None],
    ) -> None:
        target = self._target
        try:
            # Shielded: who gives up this move hasn't given up the choice.
            driver = await asyncio.shield(self._choice)
            if driver is None:
                raise SleepFailed("no driver can put it to sleep any more")
            if done is not Trigger.PAGED:  # else it is asleep all the time
                self._record(state="moving")
            await act(driver)
        except (SleepRefused, WakeRefused) as refusal:
            if done is Trigger.SLEPT:
                self._record(state="ready")
            elif done is Trigger.WOKEN and driver is not None:
                self._record_asleep(driver)
            self._stay(refusal, instead_of=done)
            return
        except Exception as error:  # a task's root, and a driver may raise anything
            text = f"it was not {done}: {error or type(error).__name__}"
            failed(UpstreamLost(f"model {target.model!r}: {text}"))
            return
        self._report(ModelChanged(target.model, target.generation, done))
        if done is Trigger.SLEPT:
            await self._look_below(driver)

    def _record_asleep(self, driver: SleepDriver) -> None:
        self._record(state="asleep", driver=driver.name, memo=driver.memo(self._target))

    def _stay(self, refusal: SleepFailed | WakeFailed, *, instead_of: Trigger) -> None:
        """Leave its process as it is, which is as well as before."""
        model, generation = self._target.model, self._target.generation
        if instead_of is Trigger.SLEPT:
            self._stay_awake(refusal)
            return
        if instead_of is Trigger.PAGED:
            self.view = replace(self.view, below=f"can't be paged out: {refusal}")
            self._report_ability()
        self._report(ModelChanged(model, generation, Trigger.SLEPT, refusal))

    def _stay_awake(self, refusal: SleepFailed | WakeFailed) -> None:
        """Stop trying to put it to sleep, and look again in a while."""
        model, generation = self._target.model, self._target.generation
        refusals = {**self.view.refusals, self.view.driver or "driver": str(refusal)}
        self.view = replace(self.view, driver=None, refusals=refusals)
        self.must_be_killed = self._is_touched = False
        self._is_up = True
        if isinstance(refusal, _BetterStopped):
            self._said.say("worth", f"stays awake: {refusal}")
        else:
            logger.warning("model %s: stays awake: %s", model, refusal)
        self._report(AbilityChanged(model, can_sleep=False, can_pause=False))
        self._report(ModelChanged(model, generation, Trigger.WOKEN))
        self._choice = self._find(after_s=0.0 if self._is_stale else _AGAIN_S)
        self._is_stale = False

    def _report_ability(self, below: Supported | None = None) -> None:
        found = self._found
        self._report(
            AbilityChanged(
                self._target.model,
                can_sleep=True,
                can_pause=found.can_pause,
                tier=found.tier,
                tier_bytes=found.tier_bytes,
                lower_tier=below.tier if below else "",
                lower_bytes=below.tier_bytes if below else 0,
            )
        )
