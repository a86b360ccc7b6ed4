"""Which states the models went through, told to the log: one line a transition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from llmsnap.core.lifecycle import TRANSITIONS, State, Trigger
from llmsnap.core.messages import (
    Action,
    Adopted,
    Event,
    KeepRequested,
    LackChanged,
    ModelChanged,
    ModelGoing,
    ModelView,
    PageOut,
    Reconfigured,
    ReleaseRequested,
    RequestArrived,
    RequestFinished,
    ResumeRequested,
    ShutdownRequested,
    Sleep,
    SleepRequested,
    Start,
    Stop,
    UnloadRequested,
    Wake,
)

logger = logging.getLogger(__name__)

_ORDERS = {
    Start: Trigger.START,
    Sleep: Trigger.SLEEP,
    PageOut: Trigger.PAGE,
    Wake: Trigger.WAKE,
    Stop: Trigger.STOP,
}

_NEWS = (ModelChanged, ModelGoing)
"""What runners report of their processes."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of one model."""

    model: str
    before: State
    after: State


class Story:
    """Follows what the scheduler does, step by step, by the same table."""

    def __init__(self, views: Iterable[ModelView], clock: Callable[[], float]) -> None:
        self._clock = clock
        views = list(views)
        self._states = {view.model: view.state for view in views}
        self._generations = {view.model: view.generation for view in views}
        self._since = {view.model: clock() for view in views}

    def know(self, models: Iterable[str]) -> None:
        """Take in that there are these models, too."""
        for model in models:
            self._states.setdefault(model, State.STOPPED)
            self._generations.setdefault(model, 0)
            self._since.setdefault(model, self._clock())

    def follow(
        self, event: Event, actions: Sequence[Action], pid: int | None
    ) -> Sequence[Transition]:
        """Return and log the steps that `event` and its `actions` mean, in order.

        `pid` is the process that `event` speaks of.
        """
        if not isinstance(event, (*_NEWS, Adopted)) and _ORDERS.keys().isdisjoint(
            map(type, actions)
        ):
            return ()  # the hot path
        steps = [
            self._step(model, trigger, event, pid) for model, trigger in self._news(event, actions)
        ]
        return [step for step in steps if step is not None]

    def _news(self, event: Event, actions: Sequence[Action]) -> Iterator[tuple[str, Trigger]]:
        if isinstance(event, _NEWS) and event.generation == self._generations[event.model]:
            if isinstance(event, ModelChanged):
                yield event.model, event.trigger
            elif self._states[event.model] is State.READY:
                yield event.model, Trigger.STOP
        if isinstance(event, Adopted):
            for found in event.found:
                self._generations[found.model] = found.generation
                yield found.model, Trigger.FOUND_ASLEEP if found.tier else Trigger.ADOPTED
        for action in actions:
            if isinstance(action, Start | Sleep | PageOut | Wake | Stop):
                self._generations[action.model] = action.generation
                yield action.model, _ORDERS[type(action)]

    def _step(
        self, model: str, trigger: Trigger, event: Event, pid: int | None
    ) -> Transition | None:
        before = self._states[model]
        after = TRANSITIONS[before].get(trigger)
        if after is None:  # news that came too late to matter
            return None
        now = self._clock()
        spent_s, self._since[model] = now - self._since[model], now
        self._states[model] = after
        is_news = isinstance(event, _NEWS) and event.model == model
        error = event.error if isinstance(event, _NEWS) and is_news else None
        logger.log(
            logging.WARNING if error else logging.DEBUG,
            "model %s: %s -> %s after %.2f s%s: %s",
            model,
            before,
            after,
            spent_s,
            f", pid {pid}" if pid and is_news else "",
            str(error).replace(":\n", ": ").replace("\n", " | ")
            if error
            else _reason(event, model),
        )
        return Transition(model, before, after)


def _reason(event: Event, model: str) -> str:
    """Say why something happens to `model` at `event`."""
    match event:
        case ModelChanged(model=other, trigger=trigger):
            return str(trigger) if other == model else f"{other} {trigger}"
        case RequestArrived(model=other):
            return "requested" if other == model else f"{other} is requested"
        case RequestFinished():
            return "a request has ended"
        case UnloadRequested():
            return "unload"
        case SleepRequested():
            return "sleep"
        case KeepRequested():
            return "it is to be kept no longer"
        case ReleaseRequested():
            return "all memory is to be given back"
        case ResumeRequested():
            return "models may load again"
        case Reconfigured():
            return "the configuration has changed"
        case LackChanged():
            return "what was in its way is no longer"
        case Adopted():
            return "an earlier proxy left it"
        case ShutdownRequested():
            return "shutdown"
        case _:
            return "time has come"
