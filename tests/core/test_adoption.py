"""R18: what an earlier proxy left is up, or asleep, from the start; and handing over."""

from __future__ import annotations

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Adopted, Found, ShutdownRequested
from tests.core.play import GIB, Play, arrive, done, exited, model, ready, slept, woken


def awake(name: str, generation: int = 7) -> Found:
    """A process that is up."""
    return Found(model=name, generation=generation)


def asleep(name: str, size: float = 20, generation: int = 7) -> Found:
    """A process that sleeps in RAM."""
    return Found(model=name, generation=generation, tier="ram", tier_bytes=round(size * GIB))


def test_r18_one_that_is_awake_is_served_at_once() -> None:
    """Without a start, and news of it carries its generation."""
    play = Play(model("a"))
    assert play.at(0, Adopted((awake("a"),))) == []
    assert play.at(1, arrive(1, "a")) == ["admit 1"]
    play.at(2, done(1))
    play.at(3, exited("a", 7))
    assert play.at(4, arrive(2, "a")) == ["start a"]
    assert play.scheduler.view("a").generation == 8


def test_r18_one_that_is_asleep_sleeps_on_until_it_is_wanted() -> None:
    """And its room in the tier is taken."""
    play = Play(model("a"), model("b"), model("c"), ram=30)
    assert play.at(0, Adopted((asleep("a"), awake("b")))) == []
    assert play.until(60) == []
    assert play.state("a") is State.ASLEEP
    assert play.at(60, arrive(1, "c")) == ["stop b"]


def test_r18_a_wake_follows_a_request() -> None:
    """As after any other sleep."""
    play = Play(model("a"))
    play.at(0, Adopted((asleep("a"),)))
    assert play.at(5, arrive(1, "a")) == ["wake a"]
    assert play.at(6, woken("a", 7)) == ["admit 1"]


def test_r18_a_pinned_one_isnt_started_twice() -> None:
    """It is up already; one that sleeps is woken."""
    play = Play(model("a", 5, pinned=True), model("b", 5, pinned=True))
    assert play.at(0, Adopted((awake("a"), asleep("b", 5)))) == ["wake b"]


def test_r18_what_does_not_fit_beside_the_others_is_stopped() -> None:
    """Pinned ones stay, and its memory is counted until it is gone."""
    play = Play(model("a"), model("b", 5, pinned=True), model("c", 4))
    assert play.at(0, Adopted((awake("a"), awake("b"), awake("c")))) == ["stop a"]
    assert play.state("b") is play.state("c") is State.READY
    assert play.at(1, exited("a", 7)) == []


def test_r18_two_of_unknown_size_arent_both_kept() -> None:
    """Each would want its device alone."""
    play = Play(model("a", None), model("b", None))
    assert play.at(0, Adopted((awake("a"), awake("b")))) == ["stop b"]
    assert play.state("a") is State.READY
    assert play.at(1, exited("b", 7)) == []


def test_r18_what_is_too_much_for_the_tier_is_stopped() -> None:
    """The budget may be smaller than before."""
    play = Play(model("a"), model("b"), ram=30)
    assert play.at(0, Adopted((asleep("a"), asleep("b")))) == ["stop b"]
    assert play.state("a") is State.ASLEEP


def test_r18_unknown_models_are_ignored() -> None:
    """Nobody asked for them."""
    play = Play(model("a"))
    assert play.at(0, Adopted((awake("x"),))) == []


# ---- handover ----------------------------------------------------------------------------------


def hand_over(*names: str) -> ShutdownRequested:
    """A shutdown after which these go on."""
    return ShutdownRequested(10, frozenset(names))


def test_r15_a_handover_leaves_those_that_can_stay() -> None:
    """And stops the others."""
    play = Play(model("a", 5), model("b", 5))
    play.up("a")
    play.up("b")
    assert play.at(1, hand_over("a")) == ["stop b"]
    assert not play.scheduler.idle
    play.at(2, exited("b"))
    assert play.scheduler.idle
    assert play.state("a") is State.READY


def test_r15_answers_end_first() -> None:
    """Or are cut when the grace is over, and their model stays all the same."""
    for ends in (True, False):
        play = Play(model("a"))
        play.at(0, arrive(1, "a"))
        play.at(0, ready("a"))
        assert play.at(1, hand_over("a")) == []
        assert not play.scheduler.idle
        if ends:
            assert play.at(5, done(1)) == []
        else:
            assert play.until(11) == [(11, "abort 1: ShuttingDown")]
        assert play.scheduler.idle
        assert play.state("a") is State.READY


def test_r15_a_start_is_given_up_and_a_sleep_waited_for() -> None:
    """What is half-way can't be gone on with."""
    play = Play(model("a"), model("b", 20))
    play.up("a")
    play.at(20, arrive(1, "b"))
    assert play.state("a") is State.SLEEPING
    play.at(21, hand_over("a", "b"))
    assert not play.scheduler.idle
    play.at(22, slept("a"))
    assert play.scheduler.idle
    assert play.state("a") is State.ASLEEP


def test_r15_a_shutdown_after_a_handover_ends_all() -> None:
    """Nothing stays then."""
    play = Play(model("a"))
    play.up("a")
    play.at(1, hand_over("a"))
    assert play.at(2, ShutdownRequested(10)) == ["stop a"]
