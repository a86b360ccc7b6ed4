"""R2, R8, R12: requests that are no use of a model, such as parts of a page that is still open."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import (
    Event,
    KeepRequested,
    ReleaseRequested,
    RequestArrived,
    SleepRequested,
)
from llmsnap.errors import Conflict
from tests.core.play import Play, arrive, done, model, ready, slept


def look(ticket: int, name: str = "a") -> Event:
    """Somebody asks for a part of its page."""
    return RequestArrived(ticket, name, limited=False, is_use=False)


def alone(**settings: Any) -> Play:
    """One model that is up since 0, and idle."""
    play = Play(model("a", **settings))
    play.up("a")
    return play


def test_r02_it_loads_and_wakes_nothing() -> None:
    """It is refused at once, before anybody would leave for it."""
    play = Play(model("a"), model("b"))
    assert play.at(0, look(1)) == ["reject 1: Conflict"]
    play.up("b")
    assert play.at(1, look(2)) == ["reject 2: Conflict"]
    assert play.at(2, arrive(3, "a")) == ["sleep b"]
    assert play.at(3, look(4)) == ["reject 4: Conflict"]


def test_r02_it_waits_for_nobody() -> None:
    """The model is up, but closed for an older request, or all memory is to be given back."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(100, arrive(2, "b"))
    assert play.until(106) == []
    assert play.at(107, look(3)) == ["reject 3: Conflict"]
    assert isinstance(play.error(), Conflict)
    play = alone(can_sleep=True)
    play.at(1, arrive(1, "a"))
    play.at(2, ReleaseRequested())
    assert play.at(3, look(2)) == ["reject 2: Conflict"]


def test_r12_it_puts_off_no_timer() -> None:
    """The end of the last use counts; but it is served to its end."""
    play = alone(ttl_s=60)
    for second in range(10, 60, 10):
        assert play.at(second, look(second)) == [f"admit {second}"]
        play.at(second + 1, done(second))
    play.at(59, look(1))
    assert play.until(65) == []
    assert play.at(66, done(1)) == ["stop a"]


def test_r12_what_was_asked_of_an_idle_model_still_holds() -> None:
    """It goes to sleep as it was told to, once nothing is under way."""
    play = alone()
    play.at(1, KeepRequested("a", 100))
    play.at(2, look(1))
    assert play.at(3, done(1)) == []
    assert play.scheduler.view("a").kept_s == 100
    assert play.at(4, SleepRequested("a")) == ["sleep a"]


@pytest.mark.parametrize("use_first", [True, False])
def test_r12_the_end_of_a_use_counts_whoever_looks_on(use_first: bool) -> None:
    """Whichever of them ends first."""
    play = alone(ttl_s=60)
    play.at(10, arrive(1, "a"))
    play.at(10, look(2))
    play.at(20, done(1 if use_first else 2))
    play.at(30, done(2 if use_first else 1))
    used_at = 20 if use_first else 30
    assert play.scheduler.view("a").used_at == used_at
    assert play.until(used_at + 60) == [(used_at + 60, "stop a")]


def test_r08_nobody_is_expected_back_for_it() -> None:
    """A page with many parts doesn't look like a client that asks every second."""
    play = Play(model("a"), model("b"))
    play.up("a")
    for moment in (100.0, 100.1, 100.2):
        play.at(moment, look(1))
        play.at(moment, done(1))
    assert play.at(100.3, arrive(2, "b")) == ["sleep a"]
    assert play.at(101, slept("a")) == ["start b"]
    assert play.state("a") is State.ASLEEP


def test_nothing_that_is_under_way_is_cut_for_a_swap() -> None:
    """Nor is it of use to keep the model longer than that."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(100, look(1))
    assert play.at(101, arrive(2, "b")) == []
    assert play.at(102, done(1)) == ["sleep a"]
