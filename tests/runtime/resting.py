"""A sleep driver that does what a test says, when it says so."""

from __future__ import annotations

import asyncio

from llmsnap.sleep.choose import Choice
from llmsnap.sleep.driver import Memo, Moved, Supported, Target, Unsupported, Verdict


class Step:
    """The step below; ends its calls when it may."""

    def __init__(self) -> None:
        self.calls = 0
        self.predicted_s: float | None = None
        self.verdict: Verdict = Supported(tier="swap", tier_bytes=1100)
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.error: Exception | None = None

    async def probe(self, target: Target) -> Verdict:
        """Say what the test wants."""
        return self.verdict

    def trip_s(self, size: int) -> float | None:
        """Predict what the test wants."""
        return self.predicted_s

    async def page_out(self, target: Target) -> Moved:
        """Pretend to."""
        self.calls += 1
        await self.may_end.wait()
        if self.error:
            raise self.error
        return Moved(seconds=2.0, bytes={"ram": -1000, "swap": 1100})


class Driver:
    """Notes its calls; ends them when it may."""

    name = "fake"
    keeps_state = True

    def __init__(
        self, *, kill_only: bool = True, may_end: bool = True, below: Step | None = None
    ) -> None:
        self.kill_only = kill_only
        self.below = below
        self.calls: list[tuple[str, int]] = []
        self.predicted_s: float | None = None
        self.may_end = asyncio.Event()
        if may_end:
            self.may_end.set()
        self.error: Exception | None = None
        self.verdict: Verdict = Supported(tier="ram", tier_bytes=1000)

    async def probe(self, target: Target) -> Verdict:
        """Say what the test wants."""
        return self.verdict

    def wake_s(self, target: Target) -> float | None:
        """Predict what the test wants."""
        return self.predicted_s

    async def sleep(self, target: Target) -> Moved:
        """Pretend to."""
        return await self._do("sleep", target)

    async def wake(self, target: Target) -> Moved:
        """Pretend to."""
        return await self._do("wake", target)

    def memo(self, target: Target) -> Memo:
        """Remember the process."""
        return {"pid": target.pid}

    async def take_over(self, target: Target, memo: Memo) -> Verdict:
        """Say what the test wants."""
        return self.verdict

    async def aclose(self) -> None:
        """Have nothing to let go of."""

    async def _do(self, what: str, target: Target) -> Moved:
        self.calls.append((what, target.pid))
        await self.may_end.wait()
        if self.error:
            raise self.error
        return Moved(seconds=0.5, bytes={"ram": 1000})


class Chooser:
    """Chooses the one driver there is, if it can."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.prepared = 0

    async def prepare(self) -> None:
        """Note it."""
        self.prepared += 1

    async def choose(self, target: Target) -> Choice:
        """Probe and choose."""
        verdict = await self.driver.probe(target)
        refused = isinstance(verdict, Unsupported)
        return Choice(None if refused else self.driver, (("fake", verdict),))

    async def take_over(self, driver: str, target: Target, memo: Memo) -> Choice:
        """Have the one driver take charge, if it can."""
        verdict = await self.driver.take_over(target, memo)
        refused = isinstance(verdict, Unsupported)
        return Choice(None if refused else self.driver, (("fake", verdict),))
