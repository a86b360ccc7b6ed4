"""Phases: a wait as a sum of named parts."""

from __future__ import annotations

import pytest

from llmsnap.core.messages import NeedChanged, Phases
from llmsnap.core.timeline import Phase, Timeline
from tests.core.play import (
    GIB,
    Play,
    arrive,
    done,
    exited,
    failed,
    model,
    ready,
    slept,
    unload,
    woken,
)


def test_each_takes_the_part_from_its_own_arrival_on() -> None:
    """Two who wait for one model share its way, not its beginning."""
    timeline = Timeline()
    timeline.enter(Phase.DRAIN, 10)
    timeline.enter(Phase.EVICT, 12)
    timeline.enter(Phase.START, 15)
    assert timeline.split(8, 20) == Phases(queue_s=2, drain_s=2, evict_s=3, start_s=5)
    assert timeline.split(13, 20) == Phases(evict_s=2, start_s=5)
    assert timeline.split(20, 20) == Phases()


def test_what_nobody_waits_for_is_forgotten_but_a_load_goes_on() -> None:
    """A later client doesn't inherit the plans of one who left, only the load under way."""
    timeline = Timeline()
    timeline.enter(Phase.DRAIN, 1)
    timeline.forget()
    assert timeline.phase is Phase.QUEUE
    timeline.enter(Phase.DRAIN, 2)
    timeline.enter(Phase.WAKE, 3)
    timeline.forget()
    assert timeline.split(0, 5) == Phases(queue_s=3, wake_s=2)


def test_phases_of_a_swap_follow_each_other_and_add_up() -> None:
    """Queue until the victim is closed, drain until it is put out, evict, start."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(90, arrive(2, "b")) == []  # fair at 95: a is closed, and goes on for 3 s
    play.at(98, done(1))
    play.at(102, slept("a"))
    play.at(112, ready("b"))
    assert play.phases(2) == Phases(queue_s=5, drain_s=3, evict_s=4, start_s=10)
    assert play.phases(2).total_s == 112 - 90


def test_phases_of_a_wake() -> None:
    """An idle victim drains nothing; a model that was asleep wakes."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(1, arrive(1, "b"))
    play.at(5, slept("a"))
    play.at(15, ready("b"))
    play.at(16, done(1))
    play.at(20, arrive(2, "a"))
    play.at(24, slept("b"))
    play.at(25, arrive(3, "a"))
    play.at(26, woken("a"))
    assert play.phases(2) == Phases(evict_s=4, wake_s=2)
    assert play.phases(3) == Phases(wake_s=1)


def test_phases_of_a_wake_that_fails() -> None:
    """The time in vain is wake, the cold start after it is start."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(1, arrive(1, "b"))
    play.at(5, slept("a"))
    play.at(15, ready("b"))
    play.at(16, done(1))
    play.at(20, arrive(2, "a"))
    play.at(24, slept("b"))
    play.at(27, exited("a"))
    play.at(37, ready("a", 2))
    assert play.phases(2) == Phases(evict_s=4, wake_s=3, start_s=10)


def test_phases_of_a_start_that_fails() -> None:
    """They were no less spent on it: whoever waited wasn't in the queue."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(1, arrive(1, "b"))
    play.at(5, slept("a"))
    play.at(7, arrive(2, "b"))
    play.at(15, failed("b"))
    assert play.phases(1) == Phases(evict_s=4, start_s=10)
    assert play.phases(2) == Phases(start_s=8)


def test_phases_of_one_who_waits_too_long() -> None:
    """Whatever was under way then."""
    play = Play(model("a"), max_wait_s=60.0)
    play.at(0, arrive(1, "a"))
    play.until(60)
    assert play.phases(1) == Phases(start_s=60)


def test_phases_up_to_now() -> None:
    """Of one who waits; of others there is nothing to tell."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.now = 4.0
    assert play.scheduler.waited(1) == Phases(start_s=4)
    assert play.scheduler.waited(2) == Phases()
    play.at(9, ready("a"))
    play.now = 10.0
    assert play.scheduler.waited(1) == Phases()


def test_phases_of_one_who_is_held_back_after_ready() -> None:
    """A model that is up but closed isn't being brought up: the rest is queue."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(100, arrive(2, "b"))
    play.at(106, arrive(3, "a"))
    play.at(110, done(2))
    assert play.phases(3) == Phases(queue_s=4)


def test_phases_of_a_plan_that_comes_to_nothing() -> None:
    """When its victim isn't enough any more, it is in the queue again."""
    play = Play(model("x", 12), model("y", 10, min_awake_s=90), model("w", 12))
    for ticket, name in ((1, "x"), (2, "y")):
        play.at(0, arrive(ticket, name))
        play.at(0, ready(name))
    play.at(50, arrive(3, "w"))
    assert play.until(55) == []  # x is closed
    assert play.at(60, NeedChanged("y", {"gpu0": 13 * GIB})) == []  # x alone won't do
    assert play.until(90) == []  # y may be closed as well
    play.at(95, done(1))
    play.at(95, done(2))
    play.at(96, slept("x"))
    play.at(97, slept("y"))
    play.at(99, ready("w"))
    assert play.phases(3) == Phases(queue_s=35, drain_s=10, evict_s=2, start_s=2)


def test_phases_of_one_who_inherits_nothing() -> None:
    """The victim was closed for somebody who left: the next one begins in the queue."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(50, arrive(2, "b"))
    assert play.until(56) == []
    play.at(57, done(2))
    play.at(60, arrive(3, "b"))
    play.at(70, done(1))
    play.at(71, slept("a"))
    play.at(73, ready("b"))
    assert play.phases(3) == Phases(queue_s=5, drain_s=5, evict_s=1, start_s=2)


def test_phases_of_one_who_waits_for_an_exit() -> None:
    """A stop isn't a start, whatever it interrupted."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(1, unload("a"))
    play.at(2, arrive(2, "a"))
    play.at(5, exited("a"))
    play.at(9, ready("a", 2))
    assert play.phases(2) == Phases(queue_s=3, start_s=4)


def test_phases_of_one_who_does_not_wait() -> None:
    """A model that is up costs nothing."""
    play = Play(model("a"))
    play.up("a")
    play.at(1, arrive(1, "a"))
    assert play.phases(1).total_s == 0


@pytest.mark.parametrize("arrival", [0.1, 1.7, 2.0, 4.3, 5.0, 9.9])
def test_phases_add_up_from_any_moment(arrival: float) -> None:
    """Whenever one arrives during a swap, its parts make its wait."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(0.1, arrive(1, "b"))
    early = arrival < 4
    if early:
        play.at(arrival, arrive(2, "b"))
    play.at(4.1, slept("a"))
    if not early:
        play.at(arrival, arrive(2, "b"))
    play.at(10.3, ready("b"))
    assert play.phases(2).total_s == pytest.approx(10.3 - arrival, abs=1e-9)
