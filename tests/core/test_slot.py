"""What a slot says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.core.lifecycle import InvalidTransition, State, Trigger
from llmsnap.core.pace import Pace
from llmsnap.core.slot import Slot
from tests.core.play import model


def slot(**settings: Any) -> Slot:
    """A stopped model with a round trip of 8 s."""
    spec = model("a", **settings)
    return Slot(spec, spec.need, None, Pace(spec.round_trip_s))


def test_limits_come_from_the_round_trip() -> None:
    """Awake for twice, a slice of three times, but never under ten seconds."""
    assert slot().min_awake_s == 16
    assert slot().slice_s == 24
    assert slot(round_trip_s=1.0).min_awake_s == 2
    assert slot(round_trip_s=1.0).slice_s == 10


def test_limits_from_the_configuration_win() -> None:
    """A number overrides what is derived; zero is a number."""
    assert slot(min_awake_s=0.0).min_awake_s == 0
    assert slot(time_slice_s=1.0).slice_s == 1


@pytest.mark.parametrize(
    ("state", "on_devices", "in_tier"),
    [
        (State.STOPPED, False, False),
        (State.STARTING, True, False),
        (State.READY, True, False),
        (State.SLEEPING, True, True),
        (State.ASLEEP, False, True),
        (State.WAKING, True, True),
        (State.FAILED, False, False),
    ],
)
def test_where_its_bytes_are(state: State, on_devices: bool, in_tier: bool) -> None:
    """While it moves, both ends count; while it stops, what it held before does."""
    one = slot()
    one.state = state
    assert (one.is_on_devices, one.is_in_tier) == (on_devices, in_tier)
    one.state, one.stopped_from = State.STOPPING, state
    assert (one.is_on_devices, one.is_in_tier) == (on_devices, in_tier)


def test_an_impossible_order_is_a_bug() -> None:
    """Nobody can wake what isn't asleep; the state stays as it was."""
    one = slot()
    with pytest.raises(InvalidTransition):
        one.move(Trigger.WAKE)
    assert one.state is State.STOPPED
