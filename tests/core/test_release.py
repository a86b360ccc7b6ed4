"""R17: all memory given back for a while."""

from __future__ import annotations

from math import inf

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ReleaseRequested, ResumeRequested
from tests.core.play import Play, arrive, done, exited, model, ready, slept, unload, woken


def test_r17_what_can_sleep_does_and_the_rest_stops() -> None:
    """Pinned models, too; nothing comes back before it is resumed."""
    play = Play(model("a", 5), model("b", 5, can_sleep=False), model("p", 5, pinned=True))
    play.until(0)
    play.at(0, ready("p"))
    play.up("a")
    play.up("b", ticket=-2)
    assert play.at(1, ReleaseRequested()) == ["sleep a", "stop b", "sleep p"]
    for news in (slept("a"), exited("b"), slept("p")):
        assert play.at(2, news) == []
    assert play.until(100) == []


def test_r17_who_comes_meanwhile_waits() -> None:
    """And is served first when models may load again."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(1, ReleaseRequested())
    play.at(2, slept("a"))
    assert play.at(3, arrive(1, "a")) == []
    assert play.at(4, arrive(2, "b")) == []
    assert play.at(9, ResumeRequested()) == ["wake a"]


def test_r17_it_ends_by_itself() -> None:
    """After the time that was asked for; a second order sets another one."""
    play = Play(model("a"))
    play.at(1, ReleaseRequested(10.0))
    play.at(2, arrive(1, "a"))
    assert play.scheduler.released == (11.0, False)
    play.at(3, ReleaseRequested(20.0))
    assert play.until(30) == [(23.0, "start a")]
    assert play.scheduler.released is None


def test_r17_no_wait_is_longer_than_otherwise() -> None:
    """The longest wait counts, for those who wait already too."""
    play = Play(model("a"), max_wait_s=60.0)
    play.at(1, ReleaseRequested())
    play.at(2, arrive(1, "a"))
    assert play.until(100) == [(62.0, "reject 1: Released")]


def test_r17_requests_are_refused_if_that_is_wanted() -> None:
    """Those who wait and those who come, with a word on when to ask again."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    assert play.at(1, ReleaseRequested(60.0, refuse=True)) == ["reject 1: Released", "stop a"]
    assert play.error().retry_after_s == 60.0
    assert play.at(21, arrive(2, "b")) == ["reject 2: Released"]
    assert play.error().retry_after_s == 40.0


def test_r17_a_start_is_given_up() -> None:
    """It would take the memory that is wanted; who waits for it keeps the place."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    assert play.at(1, ReleaseRequested()) == ["stop a"]
    play.at(2, exited("a"))
    assert play.at(3, ResumeRequested()) == ["start a"]


def test_r17_a_wake_is_brought_to_its_end() -> None:
    """Cut in the middle it would lose the conversation; nobody is let in before it sleeps again."""
    play = Play(model("a", sleep_after_s=5.0))
    play.up("a")
    play.until(5)
    play.at(6, slept("a"))
    assert play.at(7, arrive(1, "a")) == ["wake a"]
    assert play.at(8, ReleaseRequested()) == []
    assert play.at(9, woken("a")) == ["sleep a"]
    play.at(10, slept("a"))
    assert play.at(11, ResumeRequested()) == ["wake a"]


def test_r17_answers_are_paused_where_that_is_possible() -> None:
    """They go on afterwards."""
    play = Play(model("a", can_pause=True))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, ReleaseRequested()) == ["sleep a"]
    play.at(2, slept("a"))
    assert play.at(3, ResumeRequested()) == ["wake a"]
    assert play.at(4, woken("a")) == []
    assert play.at(5, done(1)) == []


def test_r17_answers_that_cant_be_paused_end_first() -> None:
    """Who comes meanwhile isn't let in, though the model is still up."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, ReleaseRequested()) == []
    assert play.at(2, arrive(2, "a")) == []
    assert play.until(50) == []
    assert play.at(50, done(1)) == ["sleep a"]


def test_r17_answers_are_cut_when_their_time_is_up() -> None:
    """If a limit was asked for."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, ReleaseRequested(inf, False, 5.0)) == []
    assert play.until(10) == [(6.0, "abort 1: ModelUnloaded"), (6.0, "stop a")]


def test_r17_an_unload_goes_on_meanwhile() -> None:
    """It has its own limit."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, unload("a", 3.0))
    assert play.at(2, ReleaseRequested()) == []
    assert play.until(10) == [(4.0, "abort 1: ModelUnloaded"), (4.0, "stop a")]
    assert play.state("a") is State.STOPPING
