"""R9: sleep, or stop."""

from __future__ import annotations

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import SleepRequested
from tests.core.play import Play, arrive, done, exited, model, ready, slept, woken


def test_r09_who_can_sleep_sleeps_and_who_cannot_is_stopped() -> None:
    """A stop is for those without a driver."""
    for can_sleep, order in ((True, "sleep a"), (False, "stop a")):
        play = Play(model("a", can_sleep=can_sleep), model("b"))
        play.up("a")
        assert play.at(20, arrive(1, "b")) == [order]


def test_r09_one_that_is_larger_than_the_tier_is_stopped() -> None:
    """Nobody else there is disturbed for it."""
    play = Play(model("z", 5), model("a"), model("b"), ram=10)
    play.up("z")
    play.at(1, arrive(1, "a"))
    play.at(2, slept("z"))
    play.at(3, ready("a"))
    play.at(4, done(1))
    assert play.at(5, arrive(2, "b")) == ["stop a"]
    assert play.state("z") is State.ASLEEP


def test_r09_only_its_own_tier_makes_room() -> None:
    """Stopping one that sleeps elsewhere would help nobody."""
    play = Play(model("z", 20, tier="swap"), model("a"), model("b"), ram=10)
    play.up("z")
    play.at(1, arrive(1, "a"))
    play.at(2, slept("z"))
    play.at(3, ready("a"))
    play.at(4, done(1))
    assert play.at(5, arrive(2, "b")) == ["stop a"]
    assert play.state("z") is State.ASLEEP


def test_r09_no_timer_stops_a_victim_that_waits_for_the_tier() -> None:
    """It is on its way out already."""
    play = Play(model("z"), model("a", ttl_s=10.0), model("b"), ram=20)
    play.up("z")
    play.at(12, arrive(1, "a"))
    play.at(13, slept("z"))
    play.at(14, ready("a"))
    play.at(15, done(1))
    assert play.at(20, arrive(2, "b")) == ["stop z"]
    assert play.until(40) == []
    assert play.at(41, exited("z")) == ["sleep a"]


def test_r09_only_colder_ones_make_room_for_an_idle_model() -> None:
    """One that was used later than the victim keeps its place in the tier."""
    play = Play(model("a", 10), model("z", 10), model("w", 20), ram=10)
    play.up("a", at=0)
    play.up("z", at=5)
    play.at(6, SleepRequested("z"))
    play.at(7, slept("z"))
    assert play.at(8, arrive(1, "w")) == ["stop a"]
    assert play.state("z") is State.ASLEEP


def test_r09_the_victim_waits_until_the_tier_has_room() -> None:
    """It is closed meanwhile, and goes to sleep as soon as the colder one is gone."""
    play = Play(model("z"), model("a"), model("b"), ram=20)
    play.up("z")
    play.at(12, arrive(1, "a"))
    play.at(13, slept("z"))
    play.at(14, ready("a"))
    play.at(15, done(1))
    assert play.at(60, arrive(2, "b")) == ["stop z"]
    assert play.at(61, arrive(3, "a")) == []
    assert play.at(62, exited("z")) == ["sleep a"]
    assert play.at(63, slept("a")) == ["start b"]


def test_r09_a_pause_may_push_out_a_warmer_one() -> None:
    """An answer under way is worth more than a model that sleeps with nothing to do."""
    play = Play(model("a", 12, can_pause=True), model("z", 10), model("b"), ram=12)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.up("z", at=5)
    play.at(6, SleepRequested("z"))
    play.at(7, slept("z"))
    play.at(20, arrive(2, "b"))
    assert play.until(36) == [(35.0, "stop z")]
    assert play.at(37, exited("z")) == ["sleep a"]
    assert play.scheduler.view("a").paused == 1


def test_r09_a_wake_counts_as_room_to_come() -> None:
    """What leaves the tier is waited for before anybody there is stopped."""
    play = Play(model("a", 10), model("b", 10), ram=10)
    play.up("a")
    assert play.at(1, SleepRequested("a")) == ["sleep a"]
    play.at(2, slept("a"))
    play.up("b", at=3)
    assert play.at(20, arrive(1, "a")) == ["wake a"]
    assert play.at(21, SleepRequested("b")) == []
    assert play.at(22, woken("a")) == ["admit 1", "sleep b"]


def test_r09_a_pinned_model_keeps_its_place_in_the_tier() -> None:
    """Put to sleep by an administrator, it isn't stopped to make room for others."""
    play = Play(model("p", 4, pinned=True), model("a"), model("b"), ram=20)
    play.at(0, arrive(9, "p"))
    play.at(0, ready("p"))
    play.at(0, done(9))
    play.at(1, SleepRequested("p"))
    play.at(2, slept("p"))
    play.up("a", at=3)
    assert play.at(20, arrive(1, "b")) == ["stop a"]
