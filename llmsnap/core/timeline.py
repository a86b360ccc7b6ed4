"""The way to one model, split into phases that follow each other without a gap."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from math import inf

from llmsnap.core.messages import Phases


class Phase(StrEnum):
    """What those who wait for a model wait for."""

    QUEUE = "queue"
    """Its turn: nothing is being done for it."""
    DRAIN = "drain"
    """Victims are chosen, and finish their answers."""
    EVICT = "evict"
    """The first victim is on its way out, or its memory isn't shown free yet."""
    WAKE = "wake"
    START = "start"


class Timeline:
    """Which phase the way to one model was in, and since when.

    All who wait for the model share it; each takes the part from its own arrival on, so that its
    phases add up to its wait.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: list[tuple[float, Phase]] = []

    @property
    def phase(self) -> Phase:
        """The phase now."""
        return self._marks[-1][1] if self._marks else Phase.QUEUE

    def enter(self, phase: Phase, now: float) -> None:
        """Note that `phase` begins; nothing when it is the phase already."""
        if phase is not self.phase:
            self._marks.append((now, phase))

    def forget(self) -> None:
        """Drop what nobody waits for any more; a load under way goes on."""
        if not self._marks:
            return
        if self.phase in (Phase.WAKE, Phase.START):
            del self._marks[:-1]
        else:
            self._marks.clear()

    def split(self, since: float, now: float) -> Phases:
        """Return how the time from `since` to `now` was spent."""
        spent = dict.fromkeys(Phase, 0.0)
        marks = [(-inf, Phase.QUEUE), *self._marks, (now, Phase.QUEUE)]
        for (begin, phase), (end, _) in pairwise(marks):
            spent[phase] += max(0.0, end - max(begin, since))
        return Phases(
            queue_s=spent[Phase.QUEUE],
            drain_s=spent[Phase.DRAIN],
            evict_s=spent[Phase.EVICT],
            wake_s=spent[Phase.WAKE],
            start_s=spent[Phase.START],
        )
