"""Which driver puts a process to sleep, and why the others don't."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from llmsnap.config.schema import SleepMode
from llmsnap.sleep.driver import Memo, SleepDriver, Supported, Target, Unsupported, Verdict

Mode = Literal[SleepMode, "enable", "disable"]

_ORDER: Final = ("endpoints", "cuda", "pageout")


@dataclass(frozen=True, slots=True)
class Choice:
    """The driver for one process; None: it is stopped and started."""

    driver: SleepDriver | None
    verdicts: tuple[tuple[str, Verdict], ...] = ()
    """What each driver that was asked said, by name, in the order in which they were asked."""

    @property
    def supported(self) -> Supported | None:
        """What the chosen driver said."""
        last = self.verdicts[-1][1] if self.verdicts else None
        return last if isinstance(last, Supported) else None

    @property
    def refusals(self) -> Mapping[str, str]:
        """Why not, by the names of the drivers that were asked in vain."""
        return {
            name: verdict.reason
            for name, verdict in self.verdicts
            if isinstance(verdict, Unsupported)
        }


async def choose(mode: Mode, target: Target, drivers: Mapping[str, SleepDriver]) -> Choice:
    """Ask the drivers that `mode` allows, best first, until one can put `target` to sleep now."""
    verdicts: list[tuple[str, Verdict]] = []
    for name in allowed(mode):
        driver = drivers.get(name)
        if driver is None:
            verdicts.append((name, Unsupported("there is no such driver here")))
            continue
        verdict = await driver.probe(target)
        verdicts.append((name, verdict))
        if isinstance(verdict, Supported):
            return Choice(driver, tuple(verdicts))
    return Choice(None, tuple(verdicts))


async def take_over(
    mode: Mode, name: str, target: Target, memo: Memo, drivers: Mapping[str, SleepDriver]
) -> Choice:
    """Have the driver called `name` take charge of `target`, which sleeps, if `mode` allows it."""
    driver = drivers.get(name)
    if driver is None or name not in allowed(mode):
        return Choice(None, ((name, Unsupported("its sleepMode is another now")),))
    verdict = await driver.take_over(target, memo)
    found = driver if isinstance(verdict, Supported) else None
    return Choice(found, ((name, verdict),))


def allowed(mode: Mode) -> tuple[str, ...]:
    """Return the names of the drivers that are asked, in that order."""
    match mode:
        case "auto":
            return _ORDER
        case "off" | "disable":
            return ()
        case "endpoints" | "enable":
            return ("endpoints",)
        case "cuda" | "pageout":
            return (mode,)


class Never:
    """Finds that a model isn't to sleep."""

    async def prepare(self) -> None:
        """Do nothing."""

    async def choose(self, target: Target) -> Choice:
        """Return no driver."""
        return Choice(None)

    async def take_over(self, driver: str, target: Target, memo: Memo) -> Choice:
        """Return no driver."""
        return Choice(None)


NEVER: Final = Never()
