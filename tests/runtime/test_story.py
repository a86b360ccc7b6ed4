from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count

import pytest

from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import (
    Abort,
    Action,
    Admit,
    Event,
    ModelChanged,
    ModelGoing,
    RequestArrived,
    RequestFinished,
    ShutdownRequested,
    Start,
    Stop,
    Tick,
    UnloadRequested,
)
from llmsnap.errors import StartFailed, UpstreamLost
from llmsnap.runtime.story import Story, Transition
from tests.helpers.views import view_of


@pytest.fixture
def story() -> Story:
    """Two models; each look at the clock takes a second."""
    return Story([view_of("a"), view_of("b")], count(0.0).__next__)


def steps(
    story: Story, event: Event, actions: Sequence[Action] = (), pid: int | None = None
) -> list[tuple[str, str, str]]:
    """What follows, in short."""
    return [(t.model, str(t.before), str(t.after)) for t in story.follow(event, actions, pid)]


def test_an_end_that_nobody_ordered(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """It is told when it begins, with its reason; later and earlier words of it are no steps."""
    caplog.set_level(logging.DEBUG)
    going = ModelGoing("a", 1, UpstreamLost("a was killed"))
    assert steps(story, RequestArrived(1, "a"), [Start("a", 1)]) == [("a", "stopped", "starting")]
    assert steps(story, going) == []
    steps(story, ModelChanged("a", 1, Trigger.READY))
    assert steps(story, going, [Abort(1, going.error)], 42) == [("a", "ready", "stopping")]
    assert caplog.records[-1].message.endswith("s, pid 42: a was killed")
    assert steps(story, ModelChanged("a", 1, Trigger.EXITED)) == [("a", "stopping", "stopped")]


def test_only_its_own_process_is_named(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """What happens to others because of it has nothing to do with that pid."""
    caplog.set_level(logging.DEBUG)
    steps(story, RequestArrived(1, "a"), [Start("a", 1)])
    steps(story, ModelChanged("a", 1, Trigger.EXITED), [Start("b", 1)], 42)
    assert ", pid 42: " in caplog.records[-2].message
    assert "pid" not in caplog.records[-1].message


def test_a_life_step_by_step(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """One transition and one log line each, with state, pid, seconds and reason."""
    caplog.set_level(logging.DEBUG)
    started = story.follow(RequestArrived(1, "a"), [Start("a", 1)], None)
    assert started == [Transition("a", State.STOPPED, State.STARTING)]
    steps(story, ModelChanged("a", 1, Trigger.READY), [Admit(1)], 42)
    steps(story, UnloadRequested("a", 0), [Stop("a", 1)])
    steps(story, ModelChanged("a", 1, Trigger.EXITED), pid=42)
    assert [record.message for record in caplog.records] == [
        "model a: stopped -> starting after 2.00 s: requested",
        "model a: starting -> ready after 1.00 s, pid 42: ready",
        "model a: ready -> stopping after 1.00 s: unload",
        "model a: stopping -> stopped after 1.00 s, pid 42: exited",
    ]


def test_an_exit_and_the_next_start_are_two_steps(story: Story) -> None:
    """Though they come in one event; none is skipped."""
    steps(story, RequestArrived(1, "a"), [Start("a", 1)])
    steps(story, ModelChanged("a", 1, Trigger.READY))
    assert steps(story, ModelChanged("a", 1, Trigger.EXITED), [Start("a", 2)]) == [
        ("a", "ready", "stopped"),
        ("a", "stopped", "starting"),
    ]
    assert steps(story, ModelChanged("a", 2, Trigger.READY)) == [("a", "starting", "ready")]


def test_late_news_mean_nothing(story: Story) -> None:
    """Of an older generation, or of what can't happen any more."""
    steps(story, RequestArrived(1, "a"), [Start("a", 1)])
    steps(story, UnloadRequested("a", 0), [Stop("a", 1)])
    assert steps(story, ModelChanged("a", 1, Trigger.READY)) == []
    steps(story, ModelChanged("a", 1, Trigger.EXITED), [Start("a", 2)])
    assert steps(story, ModelChanged("a", 1, Trigger.EXITED)) == []


def test_requests_of_a_model_that_is_up_are_no_story(story: Story) -> None:
    """Nothing is logged on the hot path."""
    assert steps(story, RequestArrived(1, "a"), [Admit(1)]) == []
    assert steps(story, RequestFinished(1)) == []


def test_a_failure_is_a_warning_in_one_line(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """The last output of the process is in it."""
    steps(story, RequestArrived(1, "a"), [Start("a", 1)])
    caplog.clear()
    steps(story, ModelChanged("a", 1, Trigger.EXITED, StartFailed("exit code 7:\nbad flag")))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.endswith("starting -> failed after 1.00 s: exit code 7: bad flag")


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (RequestArrived(2, "b"), "b is requested"),
        (RequestFinished(1), "a request has ended"),
        (ShutdownRequested(5), "shutdown"),
        (Tick(), "time has come"),
        (ModelChanged("b", 0, Trigger.SLEPT), "b slept"),
    ],
)
def test_why_a_model_is_stopped(
    story: Story, event: Event, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The event that led to it."""
    caplog.set_level(logging.DEBUG)
    steps(story, RequestArrived(1, "a"), [Start("a", 1)])
    steps(story, event, [Stop("a", 1)])
    assert caplog.records[-1].message.endswith(f": {reason}")
