"""Selectors: which of several models gets a request."""

from __future__ import annotations

import pytest

from llmsnap.config.sections import SelectorConfig, SelectorSettings
from llmsnap.core.lifecycle import State
from llmsnap.web.selectors import Selector


def selector(strategy: str, states: dict[str, State | None], spillover: int = 1) -> Selector:
    """A selector over models of those states; None: a peer's."""
    config = SelectorConfig(
        strategy=strategy,  # type: ignore[arg-type]
        targets=tuple(states),
        settings=SelectorSettings(spillover=spillover),
    )
    return Selector(config, states.get)


UP, DOWN = State.READY, State.STOPPED


@pytest.mark.parametrize(
    ("states", "chosen"),
    [
        ((DOWN, DOWN, DOWN), "a"),
        ((DOWN, UP, UP), "b"),
        ((DOWN, State.STARTING, UP), "c"),
        ((DOWN, State.ASLEEP, State.WAKING), "c"),
        ((DOWN, State.FAILED, State.ASLEEP), "c"),
        ((DOWN, State.FAILED, State.PAGING), "c"),
        ((State.STOPPING, State.SLEEPING, DOWN), "a"),
    ],
)
def test_warm_takes_what_answers_soonest(states: tuple[State, ...], chosen: str) -> None:
    """Ready, on its way, asleep; else the first."""
    assert selector("warm", dict(zip("abc", states, strict=True))).pick() == chosen


def test_pin_takes_the_first_whatever_it_is() -> None:
    """And is up when that one is."""
    pin = selector("pin", {"a": DOWN, "b": UP})

    assert pin.pick() == "a"
    assert not pin.is_up
    assert selector("warm", {"a": DOWN, "b": UP}).is_up


def test_spillover_fills_one_after_the_other() -> None:
    """A further one is taken when all that are up have as many as they may."""
    spill = selector("spillover", {"a": DOWN, "b": DOWN, "box/c": None}, spillover=2)
    taken = []
    for _ in range(7):
        taken.append(spill.pick())
        spill.in_flight[taken[-1]] += 1

    assert taken[:6] == ["a", "a", "b", "b", "box/c", "box/c"]
    assert taken[6] in ("a", "b", "box/c")


def test_spillover_takes_turns_among_equals() -> None:
    """Those that are up share what comes."""
    spill = selector("spillover", {"a": UP, "b": UP, "c": UP})

    assert [spill.pick() for _ in range(5)] == ["a", "b", "c", "a", "b"]


def test_spillover_takes_the_least_busy_when_all_are_up() -> None:
    """There is no further one."""
    spill = selector("spillover", {"a": UP, "b": UP})
    spill.in_flight.update({"a": 3, "b": 2})

    assert spill.pick() == "b"


def test_spillover_leaves_those_alone_that_are_leaving() -> None:
    """As long as there is another one."""
    assert selector("spillover", {"a": State.STOPPING, "b": DOWN}).pick() == "b"
    assert selector("spillover", {"a": State.STOPPING, "b": State.SLEEPING}).pick() == "a"
