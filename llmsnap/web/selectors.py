"""`selectors`: names that mean one of several models, whichever suits best at the moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from llmsnap.config.sections import SelectorConfig
from llmsnap.core.lifecycle import State

StateOf = Callable[[str], State | None]
"""The state of the model that a name means; None: it is a peer's."""

_COMING: Final = frozenset({State.STARTING, State.WAKING})
_UP: Final = _COMING | {State.READY}
_LEAVING: Final = frozenset({State.SLEEPING, State.STOPPING})
_WARMTH: Final = ({State.READY}, _COMING, {State.ASLEEP, State.PAGING})
"""In the order in which a model of that state answers soonest."""


class Selector:
    """One selector. `in_flight` counts its own requests, by target."""

    def __init__(self, config: SelectorConfig, state_of: StateOf) -> None:
        self.config = config
        self.in_flight: Counter[str] = Counter()
        self._state_of = state_of
        self._last = -1
        """Place of the target that got the last request which several could have had."""

    @property
    def is_up(self) -> bool:
        """Whether a request would find a model that is up, or on its way."""
        targets = self.config.targets
        if self.config.strategy == "pin":
            targets = targets[:1]
        return any(self._state_of(target) in _UP for target in targets)

    def pick(self) -> str:
        """Return the target for one more request."""
        match self.config.strategy:
            case "warm":
                return self._warmest()
            case "spillover":
                return self._least_busy()
            case "pin":
                return self.config.targets[0]

    def _warmest(self) -> str:
        targets = self.config.targets
        for states in _WARMTH:
            for target in targets:
                if self._state_of(target) in states:
                    return target
        return targets[0]

    def _least_busy(self) -> str:
        """Return one that is up and has time; else the first that isn't up; else any.

        Those that are just leaving come last: a request would have to wait for their end.
        """
        targets = self.config.targets
        active = [target for target in targets if self._is_active(target)]
        cold = [
            target
            for target in targets
            if target not in active and self._state_of(target) not in _LEAVING
        ]
        least = min((self.in_flight[target] for target in active), default=0)
        if active and (least < self.config.settings.spillover or not cold):
            return self._next_of([each for each in active if self.in_flight[each] == least])
        return (cold or list(targets))[0]

    def _is_active(self, target: str) -> bool:
        return self.in_flight[target] > 0 or self._state_of(target) in _UP

    def _next_of(self, equal: list[str]) -> str:
        """Return the first of `equal` behind the one that was next before, going round."""
        places = [self.config.targets.index(target) for target in equal]
        place = next((place for place in places if place > self._last), places[0])
        self._last = place
        return self.config.targets[place]
