"""The measured round trip."""

from __future__ import annotations

import pytest

from llmsnap.core.lifecycle import Trigger
from llmsnap.core.pace import Pace


def measured(pace: Pace, order: Trigger, seconds: float) -> None:
    """Let an order take `seconds`."""
    pace.begin(100.0)
    pace.end(order, 100.0 + seconds)


def test_the_guess_stands_until_something_is_measured() -> None:
    """Half of it for each way; a measurement replaces its own half."""
    pace = Pace(8.0)
    assert pace.round_trip_s(sleeps=True) == 8.0
    measured(pace, Trigger.SLEEP, 1.0)
    assert pace.round_trip_s(sleeps=True) == 5.0
    measured(pace, Trigger.WAKE, 2.0)
    assert pace.round_trip_s(sleeps=True) == 3.0


def test_each_pair_has_its_own_average() -> None:
    """Stops and starts say nothing of sleep and wake."""
    pace = Pace(8.0)
    measured(pace, Trigger.START, 40.0)
    measured(pace, Trigger.STOP, 2.0)
    assert pace.round_trip_s(sleeps=False) == 42.0
    assert pace.round_trip_s(sleeps=True) == 8.0


def test_an_average_follows_without_jumping() -> None:
    """One slow start counts for a third, many of them for all."""
    pace = Pace(2.0)
    measured(pace, Trigger.STOP, 1.0)
    measured(pace, Trigger.START, 10.0)
    measured(pace, Trigger.START, 20.0)
    assert pace.round_trip_s(sleeps=False) == pytest.approx(1.0 + 13.0)
    for _ in range(30):
        measured(pace, Trigger.START, 20.0)
    assert pace.round_trip_s(sleeps=False) == pytest.approx(21.0, abs=0.01)


def test_the_way_back_alone() -> None:
    """A wake and a start are measured apart; until then half of the guess is as good."""
    pace = Pace(8.0)
    measured(pace, Trigger.WAKE, 1.0)
    assert pace.back_s(sleeps=True) == 1.0
    assert pace.back_s(sleeps=False) == 4.0
