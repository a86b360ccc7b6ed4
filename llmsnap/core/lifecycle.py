"""The life cycle of one model, as a table.

What isn't in the table can't happen. The diagram in docs/lifecycle.md and the tests are made from
it. A state that ends in `-ing` means that a task is on it, and that task ends in exactly one event.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a model is."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    SLEEPING = "sleeping"
    ASLEEP = "asleep"
    PAGING = "paging"
    WAKING = "waking"
    STOPPING = "stopping"
    FAILED = "failed"


class Trigger(StrEnum):
    """What moves a model on: the scheduler's orders and the shell's news."""

    START = "start"
    READY = "ready"
    SLEEP = "sleep"
    SLEPT = "slept"
    PAGE = "page"
    PAGED = "paged"
    WAKE = "wake"
    WOKEN = "woken"
    STOP = "stop"
    EXITED = "exited"
    ADOPTED = "adopted"
    FOUND_ASLEEP = "found asleep"


class InvalidTransition(AssertionError):
    """A trigger arrived in a state that can't take it: always a bug."""


TRANSITIONS: Final[Mapping[State, Mapping[Trigger, State]]] = {
    State.STOPPED: {
        Trigger.START: State.STARTING,
        Trigger.ADOPTED: State.READY,  # an earlier proxy left it behind
        Trigger.FOUND_ASLEEP: State.ASLEEP,
    },
    State.STARTING: {
        Trigger.READY: State.READY,
        Trigger.STOP: State.STOPPING,
        Trigger.EXITED: State.FAILED,
    },
    State.READY: {
        Trigger.SLEEP: State.SLEEPING,
        Trigger.STOP: State.STOPPING,
        Trigger.EXITED: State.STOPPED,
    },
    State.SLEEPING: {
        Trigger.SLEPT: State.ASLEEP,
        Trigger.WOKEN: State.READY,  # it couldn't be put to sleep, and is as well as before
        Trigger.STOP: State.STOPPING,
        Trigger.EXITED: State.STOPPED,
    },
    State.ASLEEP: {
        Trigger.PAGE: State.PAGING,
        Trigger.WAKE: State.WAKING,
        Trigger.STOP: State.STOPPING,
        Trigger.EXITED: State.STOPPED,
    },
    State.PAGING: {
        Trigger.PAGED: State.ASLEEP,
        Trigger.SLEPT: State.ASLEEP,  # it couldn't be paged out, and sleeps on as before
        Trigger.WAKE: State.WAKING,
        Trigger.STOP: State.STOPPING,
        Trigger.EXITED: State.STOPPED,
    },
    State.WAKING: {
        Trigger.WOKEN: State.READY,
        Trigger.SLEPT: State.ASLEEP,  # it couldn't be woken now, and sleeps on as before
        Trigger.STOP: State.STOPPING,
        Trigger.EXITED: State.STOPPED,
    },
    State.STOPPING: {Trigger.EXITED: State.STOPPED},
    State.FAILED: {Trigger.START: State.STARTING},
}


def advance(state: State, trigger: Trigger) -> State:
    """Return the state that follows `state` on `trigger`.

    Raises InvalidTransition when the table has no such move.
    """
    try:
        return TRANSITIONS[state][trigger]
    except KeyError:
        raise InvalidTransition(f"{trigger} is not possible when {state}") from None
