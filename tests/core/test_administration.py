"""Unloading in every state, and R15, the shutdown."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.core.lifecycle import State
from tests.core.play import (
    Play,
    arrive,
    done,
    exited,
    failed,
    foreign,
    model,
    ready,
    shutdown,
    slept,
    unload,
    woken,
)


def paused(**settings: Any) -> Play:
    """a sleeps since 37 with ticket 1 in the middle of its answer; b serves ticket 2."""
    play = Play(model("a", can_pause=True), model("b", **settings))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    play.until(35)
    play.at(37, slept("a"))
    play.at(38, ready("b"))
    return play


# ---- unload --------------------------------------------------------------------------------------


def test_unload_of_a_stopped_model_refuses_who_waits() -> None:
    """There is no process to stop; who waits for memory is told."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, arrive(2, "b"))
    assert play.at(2, unload("b")) == ["reject 2: ModelUnloaded"]
    assert play.at(2, unload("nope")) == []


def test_unload_of_a_failed_model_is_nothing() -> None:
    """It stays failed."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(1, failed("a"))
    assert play.at(2, unload("a")) == []
    assert play.state("a") is State.FAILED


def test_unload_of_a_starting_model_stops_it_at_once() -> None:
    """However long the running answers were allowed to take: there are none."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    assert play.at(1, unload("a", 60)) == ["reject 1: ModelUnloaded", "stop a"]
    assert play.scheduler.view("a").unloading
    play.at(2, exited("a"))
    assert play.state("a") is State.STOPPED
    assert not play.scheduler.view("a").unloading


def test_unload_of_an_idle_model_stops_it_at_once() -> None:
    """Nobody is there to wait for."""
    play = Play(model("a"))
    play.up("a")
    assert play.at(1, unload("a", 60)) == ["stop a"]


def test_unload_of_a_busy_model_waits_for_its_answers() -> None:
    """Until the last one has ended; those who come meanwhile get a fresh start."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, unload("a", 60)) == []
    assert play.at(2, arrive(2, "a")) == []
    assert play.at(30, done(1)) == ["stop a"]
    assert play.at(31, exited("a")) == ["start a"]
    assert play.at(32, ready("a", 2)) == ["admit 2"]


@pytest.mark.parametrize("timeout_s", [0, 5])
def test_unload_of_a_busy_model_ends_its_answers_at_the_deadline(timeout_s: float) -> None:
    """Zero is now; the answer is ended before the process is."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    orders = play.at(1, unload("a", timeout_s))
    orders += [order for _, order in play.until(99)]
    assert orders == ["abort 1: ModelUnloaded", "stop a"]
    assert play.scheduler.history[-1][0] == 1 + timeout_s


def test_a_second_unload_only_shortens_the_first() -> None:
    """The earlier deadline counts."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, unload("a", 60))
    play.at(3, unload("a", 10))
    play.at(4, unload("a", 99))
    assert play.until(200) == [(13.0, "abort 1: ModelUnloaded"), (13.0, "stop a")]


def test_unload_of_a_model_on_its_way_to_sleep() -> None:
    """It is stopped, and its tier and devices are held until it is gone."""
    play = Play(model("a"), model("b"), ram=20)
    play.up("a")
    play.at(20, arrive(1, "b"))
    assert play.at(21, unload("a", 60)) == ["stop a"]
    assert play.at(21, slept("a")) == []
    assert play.at(22, exited("a")) == ["start b"]


def test_unload_of_a_model_that_is_asleep_or_waking() -> None:
    """It is stopped at once, whoever waits is told."""
    play = Play(model("a", 10), model("b", 20))
    play.up("a")
    play.at(20, arrive(1, "b"))
    play.at(21, slept("a"))
    play.at(22, ready("b"))
    play.at(23, done(1))
    play.at(60, arrive(2, "a"))
    assert play.at(61, slept("b")) == ["wake a"]
    assert play.at(62, unload("b", 60)) == ["stop b"]
    assert play.at(62, unload("a", 60)) == ["reject 2: ModelUnloaded", "stop a"]
    assert play.at(63, woken("a")) == []
    assert play.at(64, exited("a")) == []


def test_unload_of_a_paused_model_ends_its_answers_at_once() -> None:
    """They stand still, so there is nothing to wait for."""
    play = paused()
    assert play.at(39, unload("a", 60)) == ["abort 1: ModelUnloaded", "stop a"]
    assert play.at(40, exited("a")) == []


def test_unload_of_a_stopping_model_waits_for_the_exit() -> None:
    """One stop is enough; who waited for a new start is told, who comes later gets one."""
    play = Play(model("a", ttl_s=10.0))
    play.up("a")
    assert play.until(10) == [(10.0, "stop a")]
    play.at(11, arrive(1, "a"))
    assert play.at(12, unload("a")) == ["reject 1: ModelUnloaded"]
    assert play.at(13, arrive(2, "a")) == []
    assert play.at(14, exited("a")) == ["start a"]


def test_a_crash_during_an_unload_is_its_end() -> None:
    """The answers are lost, those who came later get a fresh start."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, unload("a", 60))
    play.at(2, arrive(2, "a"))
    assert play.at(3, exited("a")) == ["abort 1: UpstreamLost", "start a"]
    assert play.until(200) == []


def test_unload_makes_room_for_others_in_time() -> None:
    """Who waits for the memory counts on it, and takes no other victim."""
    play = Play(model("a", 12), model("b", 12), model("c", 12))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.up("b", at=1)
    play.at(20, unload("a", 60))
    assert play.at(21, arrive(2, "c")) == []
    assert play.at(22, done(1)) == ["stop a"]
    assert play.at(23, exited("a")) == ["start c"]


# ---- shutdown ------------------------------------------------------------------------------------


def test_r15_the_queue_is_refused_and_what_is_idle_is_stopped() -> None:
    """503 for those who wait; nothing starts any more."""
    play = Play(model("a", 8), model("b", 8), model("c"))
    play.at(0, arrive(1, "b"))
    play.at(0, ready("b"))
    play.up("a", at=1)
    play.at(2, arrive(2, "c"))
    assert play.at(3, shutdown()) == ["reject 2: ShuttingDown", "stop a"]
    assert play.at(4, exited("a")) == []
    assert play.at(5, done(1)) == ["stop b"]
    assert not play.scheduler.idle
    assert play.at(6, exited("b")) == []
    assert play.scheduler.idle


def test_r15_running_answers_end_within_the_grace() -> None:
    """At its end they are cut, each with an error."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, shutdown(10)) == []
    assert play.until(99) == [(11.0, "abort 1: ShuttingDown"), (11.0, "stop a")]


def test_r15_a_second_request_shortens_the_grace_and_never_lengthens_it() -> None:
    """A second signal means now."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, shutdown(10))
    assert play.at(2, shutdown(60)) == []
    assert play.at(3, shutdown(0)) == ["abort 1: ShuttingDown", "stop a"]


def test_r15_a_model_on_its_way_up_is_stopped() -> None:
    """Nobody may use it any more."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    assert play.at(1, shutdown()) == ["reject 1: ShuttingDown", "stop a"]
    assert play.at(2, ready("a")) == []
    assert play.at(3, exited("a")) == []
    assert play.scheduler.idle


def test_r15_a_paused_answer_is_woken_and_finished() -> None:
    """As soon as the others have left their memory."""
    play = paused()
    assert play.at(40, shutdown(60)) == []
    assert play.at(45, done(2)) == ["stop b"]
    assert play.at(46, exited("b")) == ["wake a"]
    assert play.at(48, woken("a")) == []
    assert play.at(50, done(1)) == ["stop a"]


def test_r15_a_paused_answer_without_memory_ends_with_the_grace() -> None:
    """502: it was promised more, and it couldn't be kept."""
    play = paused()
    play.at(40, foreign("gpu0", 10))
    play.at(40, shutdown(20))
    play.at(41, done(2))
    play.at(42, exited("b"))
    assert play.until(99) == [(60.0, "abort 1: UpstreamLost"), (60.0, "stop a")]
    assert play.error().status == 502


def test_r15_a_model_on_its_way_to_sleep_with_an_answer_comes_back() -> None:
    """It isn't stopped in the middle: first it is asleep, then it wakes."""
    play = Play(model("a", can_pause=True), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    play.until(35)
    assert play.at(36, shutdown(60)) == ["reject 2: ShuttingDown"]
    assert play.at(37, slept("a")) == ["wake a"]
    assert play.at(38, woken("a")) == []
    assert play.at(39, done(1)) == ["stop a"]


def test_r15_an_unload_that_is_under_way_keeps_its_deadline() -> None:
    """The earlier of the two ends counts."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, unload("a", 5))
    play.at(2, shutdown(60))
    assert play.until(99) == [(6.0, "abort 1: ModelUnloaded"), (6.0, "stop a")]
