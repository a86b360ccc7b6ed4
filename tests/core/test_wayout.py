"""R9: sleep, or stop."""

from __future__ import annotations

from typing import Any

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import (
    AbilityChanged,
    RequestArrived,
    ShutdownRequested,
    SleepRequested,
    UnloadRequested,
)
from tests.core.play import GIB, Play, arrive, done, exited, model, paged, ready, slept, woken


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


def two_in_ram(*, swap: float = 200) -> Play:
    """`a` is asleep in RAM, which has room for one, and `b` is up."""
    able: dict[str, Any] = {"lower_tier": "swap", "lower_bytes": 21 * GIB}
    play = Play(
        model("a", **able), model("b", **able), model("w", can_sleep=False), ram=20, swap=swap
    )
    play.up("a")
    play.at(1, arrive(1, "b"))
    play.at(2, slept("a"))
    play.at(3, ready("b"))
    play.at(4, done(1))
    return play


def test_r09_who_can_be_paged_out_of_ram_lives_on() -> None:
    """The coldest moves to swap, the victim follows it into RAM, and both can be woken."""
    play = two_in_ram()
    assert play.at(20, arrive(2, "w")) == ["pageout a"]
    assert play.state("a") is State.PAGING
    assert play.at(21, paged("a")) == ["sleep b"]
    assert play.state("a") is State.ASLEEP
    assert play.at(22, slept("b")) == ["start w"]
    play.at(23, ready("w"))
    play.at(24, done(2))
    assert play.at(60, arrive(3, "a")) == ["stop w"]
    assert play.at(61, exited("w")) == ["wake a"]


def test_r09_who_finds_no_room_in_swap_is_stopped() -> None:
    """It is a tier with books of its own."""
    play = two_in_ram(swap=20)
    assert play.at(20, arrive(2, "w")) == ["stop a"]


def test_r09_who_was_paged_out_already_is_stopped() -> None:
    """Where it is then there may be models that sleep nowhere else; it has no lower place to go."""
    low: dict[str, Any] = {"lower_tier": "swap", "lower_bytes": 5 * GIB}
    play = Play(model("a", **low), model("b"), model("s", tier="swap"), ram=20, swap=24)
    play.up("a")
    play.at(1, arrive(1, "b"))
    play.at(2, slept("a"))
    play.at(3, ready("b"))
    play.at(4, done(1))
    assert play.at(20, arrive(2, "s")) == ["pageout a"]
    assert play.at(21, paged("a")) == ["sleep b"]
    assert play.at(22, slept("b")) == ["start s"]
    play.at(23, ready("s"))
    play.at(24, done(2))
    assert play.at(60, arrive(3, "b")) == ["stop a"]
    assert play.at(61, exited("a")) == ["sleep s"]


def test_r09_who_could_not_be_paged_out_is_stopped() -> None:
    """Its driver says so, and that it is asleep in RAM as before."""
    play = two_in_ram()
    play.at(20, arrive(2, "w"))
    assert play.at(21, AbilityChanged("a", True, False, "ram", 20 * GIB)) == []
    assert play.at(22, slept("a")) == ["stop a"]
    assert play.at(23, exited("a")) == ["sleep b"]


def test_r09_who_dies_while_it_is_paged_out_leaves_both_tiers() -> None:
    """The victim need wait no longer."""
    play = two_in_ram()
    play.at(20, arrive(2, "w"))
    assert play.at(21, exited("a")) == ["sleep b"]
    assert play.state("a") is State.STOPPED


def test_r09_who_is_wanted_while_it_is_paged_out_is_woken_at_once() -> None:
    """What has left RAM by then comes back; nobody waits for the rest to leave first."""
    play = two_in_ram()
    play.at(10, SleepRequested("b"))
    assert play.state("a") is State.PAGING
    play.at(11, RequestArrived(7, "b"))
    assert play.at(12, done(7)) == []
    assert play.at(13, UnloadRequested("b", 0)) == ["stop b"]
    play.at(14, exited("b"))
    assert play.at(15, arrive(3, "a")) == ["wake a"]
    assert play.at(16, paged("a")) == []
    assert play.at(17, woken("a")) == ["admit 3"]


def test_r09_who_is_paged_out_can_be_ended() -> None:
    """By its `ttl`, by an administrator, by the end of all."""
    for order in (UnloadRequested("a", 0), ShutdownRequested(0)):
        play = two_in_ram()
        play.at(10, SleepRequested("b"))
        assert "stop a" in play.at(11, order)
        assert play.at(12, paged("a")) == []
        play.at(13, exited("a"))
        assert play.state("a") is State.STOPPED


def test_r09_a_victim_waits_for_word_of_how_it_can_sleep() -> None:
    """For a second from its start: stopped a moment too early, it would lose its conversation."""
    unknown: dict[str, Any] = {"can_sleep": False, "ability_follows": True}
    play = Play(model("a", **unknown), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(1, ready("a"))
    play.at(1.1, done(1))
    assert play.at(1.2, arrive(2, "b")) == []
    assert play.at(1.5, AbilityChanged("a", True, False, "ram", GIB)) == ["sleep a"]


def test_r09_no_victim_waits_for_word_that_does_not_come() -> None:
    """A driver that hangs holds nobody up for longer."""
    unknown: dict[str, Any] = {"can_sleep": False, "ability_follows": True}
    play = Play(model("a", **unknown), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(1, ready("a"))
    play.at(1.1, done(1))
    assert play.at(1.2, arrive(2, "b")) == []
    assert play.until(3) == [(2.0, "stop a")]
