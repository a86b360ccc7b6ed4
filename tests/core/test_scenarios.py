"""Twenty scenarios that the rules of docs/scheduling.md were worked out on, as dialogues.

A card of 24 GiB; a, b are 20 (round trip 8 s: hold 8, minAwake 16, slice 24), s is 4, unless said.
"""

from __future__ import annotations

from typing import Any

from llmsnap.core.lifecycle import State
from tests.core.play import (
    GIB,
    Play,
    arrive,
    done,
    exited,
    failed,
    foreign,
    model,
    ready,
    slept,
    woken,
)


def a_and_b(**more: Any) -> Play:
    """Two models of which one fits at a time."""
    return Play(model("a", **more), model("b"))


def expecting_back() -> Play:
    """Ready since 10, a is served at 42 after a gap of 2 s; b has been waiting since 43."""
    play = a_and_b()
    play.at(0, arrive(1, "a"))
    play.at(10, ready("a"))
    play.at(40, done(1))
    play.at(42, arrive(2, "a"))
    assert play.at(43, arrive(3, "b")) == []
    return play


def test_scenario_01_one_start_for_all_who_wait() -> None:
    """Ten clients of a stopped model make one start, and are all let in when it is ready."""
    play = a_and_b()
    assert play.at(0, arrive(1, "a")) == ["start a"]
    assert [play.at(1, arrive(n, "a")) for n in range(2, 11)] == [[]] * 9
    assert play.at(10, ready("a")) == [f"admit {n}" for n in range(1, 11)]


def test_scenario_02_a_busy_model_goes_when_it_is_idle() -> None:
    """A model that serves is put to sleep only when its answer has ended, then at once."""
    play = a_and_b()
    play.at(0, arrive(1, "a"))
    play.at(10, ready("a"))
    assert play.at(12, arrive(2, "b")) == []
    assert play.at(15, done(1)) == ["sleep a"]
    assert play.at(19, slept("a")) == ["start b"]
    assert play.at(29, ready("b")) == ["admit 2"]


def test_scenario_03_held_for_a_client_who_comes_back() -> None:
    """A model whose last gap was short is kept, is used, and goes when the waiter's turn comes."""
    play = expecting_back()
    assert play.at(44, done(2)) == []
    assert play.at(46, arrive(4, "a")) == ["admit 4"]
    assert play.at(49, done(4)) == ["sleep a"]  # b has waited 5 s, and a was awake for 16


def test_scenario_03_held_until_min_awake() -> None:
    """Before it has been awake for minAwake, even a fair waiter doesn't end the hold."""
    play = a_and_b()
    play.at(0, arrive(1, "a"))
    play.at(36, ready("a"))
    play.at(40, done(1))
    play.at(42, arrive(2, "a"))
    play.at(43, arrive(3, "b"))
    assert play.at(49, done(2)) == []
    assert play.until(60) == [(52.0, "sleep a")]


def test_scenario_04_a_hold_ends_when_nobody_comes() -> None:
    """Idle for the length of the hold, it goes, although minAwake isn't over."""
    play = a_and_b(min_awake_s=100)
    play.at(0, arrive(1, "a"))
    play.at(10, ready("a"))
    play.at(40, done(1))
    play.at(42, arrive(2, "a"))
    play.at(43, arrive(3, "b"))
    assert play.at(44, done(2)) == []
    assert play.until(60) == [(52.0, "sleep a")]


def flooded() -> Play:
    """From 10 on a always serves somebody; b arrives at 100, a's ticket 4 at 106."""
    play = a_and_b()
    play.at(0, arrive(1, "a"))
    play.at(10, ready("a"))
    assert play.at(100, arrive(2, "b")) == []
    assert play.at(104, arrive(3, "a")) == ["admit 3"]
    assert play.at(106, arrive(4, "a")) == []
    return play


def test_scenario_05_a_flood_is_closed_when_the_waiter_is_fair() -> None:
    """After fairAfter the flooded model takes none who are younger than the waiter."""
    play = flooded()
    assert play.at(107, done(1)) == []
    assert play.at(108, done(3)) == ["sleep a"]
    assert play.at(112, slept("a")) == ["start b"]


def test_scenario_06_a_waiter_who_leaves_reopens_the_model() -> None:
    """Those who were held back are let in by the very event, and nothing is put out."""
    play = flooded()
    assert play.at(106.5, done(2)) == ["admit 4"]
    assert play.state("a") is State.READY


def test_scenario_07_min_awake_beats_fairness() -> None:
    """A model that is ready only since 99 is closed at 115, not at 105."""
    play = a_and_b()
    play.at(89, arrive(1, "a"))
    play.at(99, ready("a"))
    play.at(100, arrive(2, "b"))
    assert play.at(114, arrive(3, "a")) == ["admit 3"]
    assert play.at(116, arrive(4, "a")) == []


def test_scenario_08_the_choice_of_whom_to_drain_is_stable() -> None:
    """The one awake longer is closed; that it ends one of its answers doesn't reopen it."""
    play = Play(model("x", 10), model("y", 10), model("w", 12))
    play.at(0, arrive(1, "x"))
    play.at(0, arrive(2, "y"))
    play.at(10, ready("x"))
    play.at(11, ready("y"))
    play.at(50, arrive(3, "x"))
    play.at(51, arrive(4, "w"))
    assert play.until(56) == []
    assert play.at(57, arrive(5, "x")) == []
    assert play.at(57, arrive(6, "y")) == ["admit 6"]
    assert play.at(58, done(1)) == []
    assert play.at(59, arrive(7, "y")) == ["admit 7"]
    assert play.at(60, done(3)) == ["sleep x"]


def two_cards() -> Play:
    """x is busy on gpu0 and y on gpu1; at 50 w wants most of both, and is fair at 55."""
    play = Play(
        model("w", 18, on="gpu0+gpu1"),
        model("x", 20),
        model("y", 20, on="gpu1"),
        model("z", 4),
        model("big", 10),
        room={"gpu0": 24, "gpu1": 24},
    )
    play.at(0, arrive(1, "x"))
    play.at(0, arrive(2, "y"))
    play.at(10, ready("x"))
    play.at(10, ready("y"))
    assert play.at(50, arrive(3, "w")) == []
    assert play.until(55) == []
    return play


def test_scenario_09_two_devices_are_drained_at_once() -> None:
    """Both are closed; who is idle first goes first; what fits beside the waiter may start."""
    play = two_cards()
    assert play.at(56, arrive(4, "x")) == []
    assert play.at(56, arrive(5, "y")) == []
    assert play.at(57, done(1)) == ["sleep x"]
    play.at(58, done(4))
    play.at(58, done(5))
    assert play.at(61, slept("x")) == []
    assert play.at(62, arrive(6, "z")) == ["start z"]
    assert play.at(63, arrive(7, "big")) == []
    assert play.at(64, done(2)) == ["sleep y"]
    assert play.at(68, slept("y")) == ["start w"]


def test_scenario_10_before_it_is_fair_a_waiter_claims_nothing() -> None:
    """A small model that fits beside the busy one starts, although an older ticket waits."""
    play = Play(model("a"), model("b"), model("s", 4))
    play.at(0, arrive(1, "a"))
    play.at(10, ready("a"))
    play.at(100, arrive(2, "b"))
    assert play.at(101, arrive(3, "s")) == ["start s"]


def test_scenario_11_freed_memory_is_kept_for_the_older() -> None:
    """While the victim goes to sleep a younger waiter takes no further victim, and waits."""
    play = Play(model("a"), model("b"), model("c"))
    play.up("a")
    assert play.at(12, arrive(2, "b")) == ["sleep a"]
    assert play.at(13, arrive(3, "c")) == []
    assert play.at(16, slept("a")) == ["start b"]


def test_scenario_12_what_never_fits_beside_a_pinned_model_is_refused() -> None:
    """At once, and nothing is evicted for it; whether the pinned model is up or not."""
    for is_up in (True, False):
        play = Play(model("a", 10, pinned=True), model("b"), model("c", 4))
        if is_up:
            play.up("a")
        else:
            play.at(0, arrive(9, "a"))
            play.at(0, exited("a"))
        play.at(1, arrive(2, "c"))
        assert play.at(2, arrive(1, "b")) == ["reject 1: DoesNotFit"]
        assert play.state("c") is State.STARTING


def test_scenario_13_nobody_leaves_for_foreign_memory() -> None:
    """What only other programs keep out waits without victims or claims, until they are gone."""
    play = Play(model("a", 4), model("b"), model("s", 4))
    play.up("a")
    play.at(1, foreign("gpu0", 10))
    assert play.at(2, arrive(1, "b")) == []
    assert play.until(60) == []
    assert play.at(60, arrive(2, "s")) == ["start s"]
    assert play.at(61, foreign("gpu0", 0)) == ["sleep a"]


def test_scenario_13_starts_when_the_foreign_memory_is_gone() -> None:
    """The news that other programs have ended is enough."""
    play = a_and_b()
    play.at(0, foreign("gpu0", 10))
    assert play.at(1, arrive(1, "b")) == []
    assert play.at(61, foreign("gpu0", 0)) == ["start b"]


def test_scenario_14_a_long_answer_is_paused_and_goes_on() -> None:
    """After its slice a pausable model sleeps with its answer, and wakes when it is its turn."""
    play = a_and_b(can_pause=True)
    play.at(0, arrive(1, "a"))
    play.at(10, ready("a"))
    play.at(12, arrive(2, "b"))
    assert play.until(40) == [(34.0, "sleep a")]
    assert play.scheduler.view("a").paused == 1
    assert play.at(44, slept("a")) == ["start b"]
    assert play.at(54, ready("b")) == ["admit 2"]
    assert play.at(55, done(2)) == ["sleep b"]
    assert play.at(59, slept("b")) == ["wake a"]
    assert play.at(63, woken("a")) == []
    assert play.scheduler.view("a").paused == 0


def test_scenario_15_a_paused_answer_waits_like_anybody() -> None:
    """A flood of the other model is closed for it, when its entry is fair."""
    play = a_and_b(can_pause=True)
    play.at(0, arrive(1, "a"))
    play.at(10, ready("a"))
    play.at(12, arrive(2, "b"))
    play.until(34)
    play.at(38, slept("a"))
    assert play.at(48, ready("b")) == ["admit 2"]
    assert play.at(60, arrive(3, "b")) == ["admit 3"]
    assert play.until(64) == []  # b has been awake for 16 s
    assert play.at(65, arrive(4, "b")) == []
    assert play.at(66, done(2)) == []
    assert play.at(67, done(3)) == ["sleep b"]
    assert play.at(71, slept("b")) == ["wake a"]


def test_scenario_16_no_pause_without_room_in_the_tier() -> None:
    """With a tier full of paused models, the next long answer isn't paused but ends."""
    play = Play(model("a", can_pause=True), model("b", can_pause=True), model("c"), ram=20)
    play.at(0, arrive(1, "a"))
    play.at(10, ready("a"))
    play.at(12, arrive(2, "b"))
    assert play.until(34) == [(34.0, "sleep a")]
    play.at(38, slept("a"))
    assert play.at(48, ready("b")) == ["admit 2"]
    assert play.at(49, arrive(3, "c")) == []
    assert play.until(200) == []
    assert play.at(201, done(2)) == ["stop b"]
    assert play.at(202, exited("b")) == ["wake a"]


def test_scenario_17_none_is_paused_while_another_drains() -> None:
    """Two busy victims are needed, and one can't pause: both finish their answers."""
    play = Play(model("x", 10, can_pause=True), model("y", 10), model("w"))
    play.at(0, arrive(1, "x"))
    play.at(0, arrive(2, "y"))
    play.at(10, ready("x"))
    play.at(10, ready("y"))
    play.at(50, arrive(3, "w"))
    assert play.until(200) == []
    assert play.at(201, done(2)) == ["sleep x", "sleep y"]


def full_tier() -> Play:
    """z = 20 is asleep in a tier of 20, a has been used after it."""
    play = Play(model("z"), model("a"), model("b"), ram=20)
    play.up("z")
    play.at(12, arrive(2, "a"))
    play.at(16, slept("z"))
    play.at(26, ready("a"))
    play.at(27, done(2))
    return play


def test_scenario_18_the_coldest_makes_room_in_the_tier() -> None:
    """An evicted model waits until a colder one was stopped, then sleeps in its place."""
    play = full_tier()
    assert play.at(28, arrive(3, "b")) == ["stop z"]
    assert play.at(29, exited("z")) == ["sleep a"]
    assert play.at(33, slept("a")) == ["start b"]


def test_scenario_18_a_model_that_is_wanted_stays_in_the_tier() -> None:
    """If somebody waits for the one asleep, the evicted one is stopped instead."""
    play = full_tier()
    play.at(28, foreign("gpu0", 4))
    assert play.at(28, arrive(3, "z")) == ["stop a"]


def test_scenario_19_failures_on_the_way_up() -> None:
    """A failed wake starts cold, a failed start refuses; the first retry is at once, then not."""
    play = a_and_b()
    play.up("b")
    play.at(12, arrive(2, "a"))
    play.at(16, slept("b"))
    play.at(26, ready("a"))
    play.at(27, done(2))
    assert play.at(30, arrive(3, "b")) == ["sleep a"]
    assert play.at(34, slept("a")) == ["wake b"]
    assert play.at(38, exited("b")) == ["start b"]
    assert play.at(48, failed("b", 2)) == ["reject 3: StartFailed"]
    assert play.at(49, arrive(4, "b")) == ["start b"]
    assert play.at(59, failed("b", 3)) == ["reject 4: StartFailed"]
    assert play.at(60, arrive(5, "b")) == ["reject 5: BackingOff"]
    assert play.error().retry_after_s == 1.0
    assert play.state("a") is State.ASLEEP
    assert play.at(61, arrive(6, "b")) == ["start b"]


def test_scenario_20_late_news_and_late_memory() -> None:
    """News of an old generation is nothing; nothing starts before the memory is shown free."""
    play = a_and_b()
    play.up("a")
    play.at(1, exited("a"))
    play.up("a", at=2)
    assert play.at(3, slept("a", 1)) == []
    assert play.state("a") is State.READY
    assert play.at(12, arrive(2, "b")) == ["sleep a"]
    assert play.until(19) == []
    assert play.at(19, slept("a", 2)) == ["start b"]


def test_scenario_20_memory_that_does_not_come_back_is_foreign() -> None:
    """After the settle time the rest counts as foreign: what fits beside it may start."""
    play = Play(model("a"), model("b"), model("s", 4))
    play.up("a")
    play.at(12, arrive(2, "b"))
    play.at(30, foreign("gpu0", 5))
    assert play.at(30, slept("a")) == []
    assert play.at(31, arrive(3, "s")) == ["start s"]
    assert play.scheduler.view("s").need == {"gpu0": 4 * GIB}
