"""R11, R12: pinned models, and idle timers."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import KeepRequested, LackChanged, SleepRequested, Tick
from llmsnap.errors import ModelIncomplete
from tests.core.play import (
    Play,
    arrive,
    done,
    exited,
    failed,
    model,
    ready,
    shutdown,
    slept,
    unload,
    woken,
)


def alone(**settings: Any) -> Play:
    """One model that is up since 0, and idle."""
    play = Play(model("a", **settings))
    play.up("a")
    return play


def test_r11_a_pinned_model_is_loaded_at_the_start() -> None:
    """The first tick is due at once, and starts it without a ticket."""
    play = Play(model("p", 4, pinned=True), model("a"))
    assert play.until(0) == [(0.0, "start p")]
    assert play.at(5, ready("p")) == []
    assert play.until(99999) == []


def test_r11_it_is_loaded_again_when_it_crashes() -> None:
    """At once; after failed starts with the same back-off as everybody."""
    play = Play(model("p", 4, pinned=True))
    play.until(0)
    play.at(5, ready("p"))
    assert play.at(9, exited("p")) == ["start p"]
    assert play.at(10, failed("p", 2)) == ["start p"]
    assert play.at(11, failed("p", 3)) == []
    assert play.until(20) == [(13.0, "start p")]
    assert play.at(21, ready("p", 4)) == []


def test_r11_one_that_never_lasts_is_given_time() -> None:
    """Crash upon crash it waits longer; after a minute up, a crash is the first one again."""
    play = Play(model("p", 4, pinned=True))
    play.until(0)
    play.at(1, ready("p"))
    assert play.at(2, exited("p")) == ["start p"]
    play.at(3, ready("p", 2))
    assert play.at(4, exited("p", 2)) == []
    assert play.until(20) == [(6.0, "start p")]
    play.at(21, ready("p", 3))
    assert play.at(22, exited("p", 3)) == []
    assert play.at(23, arrive(1, "p")) == ["start p"], "a client is no reason to wait"
    play.at(24, ready("p", 4))
    play.at(25, done(1))
    assert play.at(85, exited("p", 4)) == ["start p"]


def test_r11_it_makes_room_for_itself_like_anybody() -> None:
    """Who took its place while it couldn't start finishes first, and then goes."""
    play = Play(model("p", 10, pinned=True), model("a", 14), model("b", 10))
    play.until(0)
    play.at(0, failed("p"))
    play.at(1, failed("p", 2))  # the next try is due at 3
    play.up("a", at=1)
    play.at(2, arrive(1, "b"))
    assert play.at(2, ready("b")) == ["admit 1"]
    play.at(2.5, arrive(2, "a"))
    assert play.until(4) == []
    assert play.at(5, done(1)) == ["sleep b"]
    assert play.at(6, slept("b")) == ["start p"]


def test_r11_it_is_never_a_victim() -> None:
    """Who doesn't fit beside it waits, or is refused."""
    play = Play(model("p", 10, pinned=True), model("a", 14), model("b", 14))
    play.until(0)
    play.at(1, ready("p"))
    play.up("a", at=2)
    assert play.at(60, arrive(1, "b")) == ["sleep a"]


def test_r11_no_timer_touches_it() -> None:
    """Whatever its ttl says."""
    play = Play(model("p", 4, pinned=True, ttl_s=10.0, sleep_after_s=5.0))
    play.until(0)
    play.at(1, ready("p"))
    assert play.until(9999) == []


def test_r11_one_that_was_unloaded_stays_down_until_it_is_asked_for() -> None:
    """An administrator meant it; a client brings it back, and then it is kept again."""
    play = Play(model("p", 4, pinned=True))
    play.until(0)
    play.at(1, ready("p"))
    assert play.at(2, unload("p")) == ["stop p"]
    assert play.at(3, exited("p")) == []
    assert play.until(999) == []
    assert play.at(1000, arrive(1, "p")) == ["start p"]
    play.at(1001, ready("p", 2))
    assert play.at(1002, exited("p", 2)) == ["abort 1: UpstreamLost", "start p"]


def test_r11_one_that_was_unloaded_while_it_waited_waits_no_more() -> None:
    """Its place in the queue goes with the request to unload it."""
    play = Play(model("p", 10, pinned=True), model("a", 14), model("b", 10))
    play.until(0)
    play.at(0, failed("p"))
    play.at(1, failed("p", 2))
    play.up("a", at=1)
    play.at(2, arrive(1, "b"))
    play.at(2, ready("b"))
    play.at(2.5, arrive(2, "a"))
    assert play.until(4) == []  # p is in the queue since 3
    assert play.at(4, unload("p")) == []
    assert play.at(5, done(1)) == []
    assert play.until(999) == []


def test_r12_ttl_stops_and_sleep_after_sleeps() -> None:
    """Each counts from the end of the last request."""
    assert alone(ttl_s=60.0).until(999) == [(60.0, "stop a")]
    play = alone(ttl_s=60.0, sleep_after_s=20.0)
    assert play.until(30) == [(20.0, "sleep a")]
    play.at(31, slept("a"))
    assert play.until(999) == [(60.0, "stop a")]


def test_r12_use_puts_it_off() -> None:
    """The clock starts again when the answer ends."""
    play = alone(ttl_s=60.0)
    play.at(50, arrive(1, "a"))
    play.at(100, done(1))
    assert play.until(999) == [(160.0, "stop a")]


def test_r12_one_that_was_loaded_and_never_used_has_its_ttl_from_ready() -> None:
    """Its client left while it loaded."""
    play = Play(model("a", ttl_s=60.0))
    play.at(0, arrive(1, "a"))
    play.at(5, done(1))
    play.at(30, ready("a"))
    assert play.until(999) == [(90.0, "stop a")]


def test_r12_no_timer_runs_while_it_loads() -> None:
    """A start may take as long as it takes."""
    play = Play(model("a", ttl_s=5.0))
    play.at(0, arrive(1, "a"))
    assert play.until(300) == []
    assert play.at(301, ready("a")) == ["admit 1"]


@pytest.mark.parametrize("seconds", [60, 6000])
def test_r12_no_timer_runs_while_it_serves(seconds: float) -> None:
    """However long the answer, and however silent."""
    play = alone(ttl_s=10.0, sleep_after_s=5.0)
    play.at(1, arrive(1, "a"))
    assert play.until(seconds) == []


def test_r12_a_paused_answer_has_no_ttl() -> None:
    """Its model sleeps until its turn comes, however long."""
    play = Play(model("a", can_pause=True, ttl_s=60.0), model("b", min_awake_s=9999), max_wait_s=0)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    play.until(35)
    play.at(37, slept("a"))
    play.at(38, ready("b"))
    assert play.until(999) == []
    play.at(1000, done(2))
    play.at(1001, slept("b"))
    assert play.at(1002, woken("a")) == []


def test_r12_one_that_cannot_sleep_stays() -> None:
    """Only `ttl` stops what is idle: whoever sets none wants it up."""
    assert alone(can_sleep=False, sleep_after_s=20.0).until(99) == []


def test_an_administrator_puts_an_idle_model_to_sleep() -> None:
    """At once; a busy one, one that is wanted, or one that can't is left as it is."""
    assert alone().at(1, SleepRequested("a")) == ["sleep a"]
    assert alone(can_sleep=False).at(1, SleepRequested("a")) == []
    play = alone()
    play.at(1, arrive(1, "a"))
    assert play.at(2, SleepRequested("a")) == []
    assert play.at(3, done(1)) == []
    assert play.at(3, SleepRequested("nope")) == []


def test_a_pinned_model_sleeps_when_asked_but_is_not_stopped_for_it() -> None:
    """Where its tier has no room the request comes to nothing."""
    play = Play(model("p", 4, pinned=True), ram=2)
    play.until(0)
    play.at(1, ready("p"))
    assert play.at(2, SleepRequested("p")) == []
    assert play.at(3, Tick()) == []
    assert play.state("p") is State.READY


def test_who_is_wanted_again_does_not_go_to_sleep() -> None:
    """A client who comes before the tier has room calls the request off."""
    play = Play(model("z", 10), model("a", 10), ram=10)
    play.up("z")
    play.at(1, SleepRequested("z"))
    play.at(2, slept("z"))
    play.up("a", at=3)
    assert play.at(4, SleepRequested("a")) == ["stop z"]
    assert play.at(5, arrive(1, "a")) == ["admit 1"]
    assert play.at(6, exited("z")) == []
    assert play.at(7, done(1)) == []


def test_pinned_models_are_not_loaded_during_the_shutdown() -> None:
    """Nothing starts any more."""
    play = Play(model("p", 4, pinned=True))
    play.until(0)
    assert play.at(1, shutdown()) == ["stop p"]
    assert play.at(2, exited("p")) == []
    assert play.scheduler.idle


def test_r11_the_default_model_is_loaded_at_the_start() -> None:
    """If nobody asks for anything else."""
    play = Play(model("d", is_default=True), model("a"))
    assert play.until(0) == [(0.0, "start d")]


def test_r11_u17_the_default_model_comes_back_when_others_expire() -> None:
    """It makes room for them, and is back as soon as their memory is free."""
    play = Play(model("d", is_default=True, sleep_after_s=1.0), model("big", ttl_s=2.0))
    play.until(0)
    play.at(1, ready("d"))
    assert play.until(50) == []
    assert play.at(51, arrive(1, "big")) == ["sleep d"]
    assert play.at(52, slept("d")) == ["start big"]
    play.at(53, ready("big"))
    play.at(54, done(1))
    assert play.until(56) == [(56.0, "stop big")]
    assert play.at(57, exited("big")) == ["wake d"]


def test_r11_the_default_model_puts_nobody_out() -> None:
    """However long the others are idle; beside a small one it fits."""
    play = Play(model("d", is_default=True), model("big"), model("s", 4))
    play.until(0)
    play.at(1, ready("d"))
    play.at(51, arrive(1, "big"))
    play.at(52, slept("d"))
    play.at(53, ready("big"))
    play.at(54, done(1))
    assert play.until(99999) == []
    assert play.at(100000, unload("big")) == ["stop big"]
    assert play.at(100001, exited("big")) == ["wake d"]


def test_r11_an_administrator_may_send_the_default_model_away() -> None:
    """It stays away until it is asked for, or the proxy starts again."""
    play = Play(model("d", is_default=True))
    play.until(0)
    play.at(1, ready("d"))
    assert play.at(2, SleepRequested("d")) == ["sleep d"]
    assert play.at(3, slept("d")) == []
    assert play.at(4, arrive(1, "d")) == ["wake d"]
    play.at(5, woken("d"))
    play.at(6, done(1))
    assert play.at(7, unload("d")) == ["stop d"]
    assert play.at(8, exited("d")) == []
    assert play.until(99999) == []


def test_r11_the_default_model_backs_off() -> None:
    """As everybody whose starts fail."""
    play = Play(model("d", is_default=True))
    play.until(0)
    assert play.at(1, failed("d")) == ["start d"]
    assert play.at(2, failed("d", 2)) == []
    assert play.until(10) == [(4.0, "start d")]


def test_r15_the_default_model_stays_away_from_a_shutdown() -> None:
    """Nothing starts any more."""
    play = Play(model("d", is_default=True))
    play.until(0)
    play.at(1, ready("d"))
    assert play.at(2, shutdown()) == ["stop d"]
    assert play.at(3, exited("d")) == []


@pytest.mark.parametrize(
    ("settings", "keep_s", "moves"),
    [
        ({}, 30, [(30.0, "sleep a")]),
        ({}, inf, []),
        ({"can_sleep": False}, 30, [(30.0, "stop a")]),
        ({"ttl_s": 10.0}, 30, [(30.0, "stop a")]),
        ({"ttl_s": 10.0}, inf, []),
        ({"ttl_s": 60.0, "can_sleep": False}, 30, [(30.0, "stop a")]),
        ({"sleep_after_s": 10.0}, 30, [(30.0, "sleep a")]),
        ({"sleep_after_s": 10.0}, inf, []),
        ({"pinned": True}, 0, []),
    ],
)
def test_r12_a_client_may_say_how_long(
    settings: dict[str, Any], keep_s: float, moves: list[tuple[float, str]]
) -> None:
    """Sooner or later than the settings would have it, up to for ever; pinned models stay."""
    play = alone(**settings)
    play.at(0, KeepRequested("a", keep_s))
    assert play.until(9999) == moves


def test_r12_no_time_at_all_is_at_once() -> None:
    """Even if it was used long ago."""
    play = alone(ttl_s=100.0)
    assert play.at(50, KeepRequested("a", 0)) == ["sleep a"]


def test_r12_the_next_use_takes_back_what_was_said() -> None:
    """And who uses it meanwhile isn't to be disturbed."""
    play = alone(ttl_s=10.0)
    play.at(0, KeepRequested("a", inf))
    play.at(50, arrive(1, "a"))
    assert play.scheduler.view("a").kept_s is None
    assert play.at(51, KeepRequested("a", 0)) == []
    play.at(52, done(1))
    assert play.until(99) == [(62.0, "stop a")]


def test_r12_it_keeps_nobody_else_out() -> None:
    """Who is kept is put out for who needs the memory, like all others."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(1, KeepRequested("a", inf))
    assert play.at(2, arrive(1, "b")) == ["sleep a"]


@pytest.mark.parametrize("kind", ["pinned", "is_default"])
def test_r11_one_that_lacks_its_file_is_loaded_once_it_is_there(kind: str) -> None:
    """It isn't tried in vain, at the start or later."""
    more: dict[str, Any] = {kind: True, "lack": ModelIncomplete("no file")}
    play = Play(model("p", 4, **more), model("a"))
    assert play.until(99999) == []
    assert play.at(100000, LackChanged("p", None)) == ["start p"]
