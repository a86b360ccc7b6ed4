"""What people are told when they are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llmsnap.config.sections import GroupConfig
from llmsnap.core.constraints import GroupRules
from llmsnap.core.messages import Reject
from tests.core.play import Play, arrive, foreign, model, ready, slept, unload


def test_does_not_fit_alone() -> None:
    """Without pinned models the capacity itself is too small."""
    play = Play(model("b", 30))
    play.at(0, arrive(1, "b"))
    assert play.error().message == (
        "'b' needs 30 GiB of gpu0, where 24 GiB of 24 GiB are available; "
        "give it less context or fewer layers there, or raise the device's budget"
    )


def still_starting() -> Play:
    """The model itself is on its way."""
    play = Play(model("b"))
    play.at(0, arrive(1, "b"))
    return play


def still_stopping() -> Play:
    """Its last process isn't gone."""
    play = Play(model("b"))
    play.up("b")
    play.at(0, unload("b"))
    play.at(0, arrive(1, "b"))
    return play


def being_unloaded() -> Play:
    """It answers to the end, and takes nobody."""
    play = Play(model("b"))
    play.at(0, arrive(2, "b"))
    play.at(0, ready("b"))
    play.at(0, unload("b", 9999))
    play.at(0, arrive(1, "b"))
    return play


def others_use_it() -> Play:
    """Another program has the memory."""
    play = Play(model("b"))
    play.at(0, foreign("gpu0", 10))
    play.at(0, arrive(1, "b"))
    return play


def pinned_and_starting() -> Play:
    """Two neighbours, each with its own reason."""
    play = Play(model("p", 4, pinned=True), model("a"), model("b"))
    play.until(0)
    play.at(0, ready("p"))
    play.at(0, arrive(2, "a"))
    play.at(0, arrive(1, "b"))
    return play


def in_a_group() -> Play:
    """No memory, but a group."""
    groups = {"g": GroupConfig(members=("a", "b"))}
    play = Play(
        model("a", 0, min_awake_s=9999),
        model("b", 0),
        constraints=GroupRules.from_config(groups, []),
    )
    play.at(0, arrive(2, "a"))
    play.at(0, ready("a"))
    play.at(0, arrive(3, "a"))
    play.at(0, arrive(1, "b"))
    return play


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (still_starting, "it was still starting"),
        (still_stopping, "its last process was still stopping"),
        (being_unloaded, "it was being unloaded"),
        (others_use_it, "other programs use 10 GiB of gpu0"),
        (pinned_and_starting, "'a' was starting; 'p' is pinned"),
        (in_a_group, "'a' was serving 2 requests"),
    ],
)
def test_waited_too_long_says_what_stood_in_the_way(build: Callable[[], Play], reason: str) -> None:
    """Whatever it is, by name."""
    play = build()
    orders = play.until(600)
    assert (600.0, "reject 1: WaitedTooLong") in orders
    (error,) = [
        action.error
        for _, _, actions in play.scheduler.history
        for action in actions
        if isinstance(action, Reject) and action.ticket == 1
    ]
    assert error.message == f"'b' wasn't available within 600 s (schedule.maxWait): {reason}"


def test_one_who_made_room_is_told_so() -> None:
    """Its model is up, but closed for an older one."""
    play = Play(model("a", can_pause=True), model("b"))
    play.at(0, arrive(2, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(3, "b"))
    play.until(35)  # a is paused, and waits for its turn without a limit
    play.at(36, slept("a"))
    play.at(37, ready("b"))
    play.at(60, arrive(1, "b"))
    assert play.until(660) == [(660.0, "reject 1: WaitedTooLong")]
    assert play.error().message.endswith(
        "it had to make room for a model that was asked for earlier"
    )
