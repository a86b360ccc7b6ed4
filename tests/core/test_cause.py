"""Orders say why they are given."""

from __future__ import annotations

from llmsnap.core.cause import Cause, Why
from llmsnap.core.messages import (
    Action,
    Event,
    RequestArrived,
    Sleep,
    SleepRequested,
    Start,
    Stop,
    Wake,
)
from tests.core.play import Play, arrive, done, model, ready, shutdown, slept, unload


def causes(play: Play, at: float, event: Event) -> list[str]:
    """Why the orders at `event` are given, with the model of each."""
    play.at(at, event)
    _, _, actions = play.scheduler.history[-1]
    return [_told(action) for action in actions if isinstance(action, Start | Wake | Sleep | Stop)]


def _told(action: Action) -> str:
    assert isinstance(action, Start | Wake | Sleep | Stop)
    return f"{type(action).__name__.lower()} {action.model}: {action.cause}"


def test_a_swap() -> None:
    """The victim leaves for the other one, which is loaded because it was requested."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(100, arrive(1, "a"))
    play.at(101, done(1))
    assert causes(play, 200, arrive(2, "b")) == ["sleep a: evicted by b"]
    assert causes(play, 201, slept("a")) == ["start b: requested"]


def test_idle_models_and_administrators() -> None:
    """For how long nobody used it is told."""
    play = Play(model("a", sleep_after_s=300))
    play.up("a")
    play.until(301)
    _, _, (sleep,) = play.scheduler.history[-1]
    assert isinstance(sleep, Sleep)
    assert str(sleep.cause) == "idle 300 s"
    play.at(302, slept("a"))
    assert causes(play, 303, RequestArrived(1, "a", limited=False)) == ["wake a: asked"]


def test_orders() -> None:
    """Of administrators, and of who ends the proxy."""
    play = Play(model("a"), model("b", on="gpu1"))
    play.up("a")
    play.up("b")
    assert causes(play, 50, SleepRequested("a")) == ["sleep a: asked"]
    play.at(51, slept("a"))
    assert causes(play, 52, unload("a")) == ["stop a: asked"]
    assert causes(play, 53, shutdown()) == ["stop b: shutdown"]


def test_a_pinned_model() -> None:
    """Nobody asks for it."""
    play = Play(model("p", pinned=True))
    play.until(0)
    _, _, (start,) = play.scheduler.history[-1]
    assert isinstance(start, Start)
    assert start.cause == Cause(Why.PINNED)
    assert play.at(1, ready("p")) == []


def test_what_it_is_for_isnt_part_of_an_order() -> None:
    """Two orders are the same whyever they are given."""
    assert Stop("a", 1, Cause(Why.IDLE)) == Stop("a", 1, Cause(Why.TTL))
