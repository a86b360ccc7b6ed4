"""The life cycle's table, and what it promises about itself."""

from __future__ import annotations

import pytest

from llmsnap.core.lifecycle import TRANSITIONS, InvalidTransition, State, Trigger, advance


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("trigger", Trigger)
def test_what_is_not_in_the_table_cannot_happen(state: State, trigger: Trigger) -> None:
    """A move is in the table, or it raises and says which it was."""
    if trigger in TRANSITIONS[state]:
        assert advance(state, trigger) is TRANSITIONS[state][trigger]
    else:
        with pytest.raises(InvalidTransition, match=f"{trigger} is not possible when {state}"):
            advance(state, trigger)


def test_every_state_can_be_reached_and_left() -> None:
    """No state is a dead end, and none is out of reach."""
    assert set(TRANSITIONS) == set(State)
    assert all(TRANSITIONS.values())
    reached = {after for moves in TRANSITIONS.values() for after in moves.values()}
    assert reached == set(State)


@pytest.mark.parametrize("state", [s for s in State if s not in (State.STOPPED, State.FAILED)])
def test_a_process_may_end_at_any_time(state: State) -> None:
    """Wherever there is a process, the table knows what its exit means."""
    expected = State.FAILED if state is State.STARTING else State.STOPPED
    assert advance(state, Trigger.EXITED) is expected
