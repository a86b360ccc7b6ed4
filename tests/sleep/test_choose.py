"""Which driver is taken, and what is known of the others."""

from __future__ import annotations

import pytest

from llmsnap.sleep.choose import Mode, choose
from llmsnap.sleep.driver import Memo, Moved, SleepDriver, Supported, Target, Unsupported, Verdict
from tests.sleep.holder import target

YES = Supported(tier="swap", tier_bytes=5, can_pause=True)
NO = Unsupported("not today")


class Driver:
    """Says what it is told to, and whether it was asked."""

    keeps_state = True
    below = None
    kill_only = True

    def __init__(self, name: str, verdict: Verdict) -> None:
        self.name = name
        self.asked = 0
        self._verdict = verdict

    async def probe(self, target: Target) -> Verdict:
        self.asked += 1
        return self._verdict

    def wake_s(self, target: Target) -> float | None:
        raise AssertionError

    async def sleep(self, target: Target) -> Moved:
        raise AssertionError

    async def wake(self, target: Target) -> Moved:
        raise AssertionError

    def memo(self, target: Target) -> Memo:
        raise AssertionError

    async def take_over(self, target: Target, memo: Memo) -> Verdict:
        return await self.probe(target)

    async def aclose(self) -> None: ...


def drivers(**verdicts: Verdict) -> dict[str, SleepDriver]:
    """These drivers, in an order that must not matter."""
    return {name: Driver(name, verdict) for name, verdict in reversed(verdicts.items())}


@pytest.mark.parametrize(
    ("endpoints", "cuda", "pageout", "chosen"),
    [
        pytest.param(YES, YES, YES, "endpoints", id="endpoints come first"),
        pytest.param(NO, YES, YES, "cuda", id="then cuda"),
        pytest.param(NO, NO, YES, "pageout", id="then pageout"),
        pytest.param(NO, NO, NO, None, id="then none"),
    ],
)
async def test_auto_takes_the_first_that_works(
    endpoints: Verdict, cuda: Verdict, pageout: Verdict, chosen: str | None
) -> None:
    """The rest isn't asked; those before it say why not."""
    all_drivers = drivers(endpoints=endpoints, cuda=cuda, pageout=pageout)
    choice = await choose("auto", target(1, 1), all_drivers)
    assert (choice.driver.name if choice.driver else None) == chosen
    names = ["endpoints", "cuda", "pageout"]
    asked = names[: names.index(chosen) + 1] if chosen else names
    assert [name for name, _ in choice.verdicts] == asked
    assert choice.refusals == dict.fromkeys(asked if chosen is None else asked[:-1], "not today")
    assert choice.supported == (YES if chosen else None)


@pytest.mark.parametrize(
    ("mode", "asked"),
    [("cuda", "cuda"), ("pageout", "pageout"), ("endpoints", "endpoints"), ("enable", "endpoints")],
)
async def test_a_named_driver_is_the_only_one(mode: Mode, asked: str) -> None:
    """That one or none."""
    choice = await choose(mode, target(1, 1), drivers(endpoints=YES, cuda=YES, pageout=YES))
    assert choice.driver is not None
    assert choice.driver.name == asked

    verdicts: dict[str, Verdict] = {"endpoints": YES, "cuda": YES, "pageout": YES, asked: NO}
    choice = await choose(mode, target(1, 1), drivers(**verdicts))
    assert choice.driver is None
    assert choice.refusals == {asked: "not today"}


@pytest.mark.parametrize("mode", ["off", "disable"])
async def test_off_asks_nobody(mode: Mode) -> None:
    """Nothing is chosen and nothing refused."""
    driver = Driver("pageout", YES)
    choice = await choose(mode, target(1, 1), {"pageout": driver})
    assert (choice.driver, choice.verdicts, driver.asked) == (None, (), 0)
    assert choice.supported is None


async def test_a_driver_that_isnt_there() -> None:
    """It is a refusal like any other."""
    choice = await choose("auto", target(1, 1), drivers(pageout=YES))
    assert choice.driver is not None
    assert choice.driver.name == "pageout"
    assert set(choice.refusals) == {"endpoints", "cuda"}
