"""The run: turn by turn through the programme, until all is done, or time is up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from llmsnap.bench.programme import Pace, Programme
from llmsnap.bench.report import Report
from llmsnap.bench.samples import Case, Sample, Scene

TIME_IS_UP: Final = "the time was up"
INTERRUPTED: Final = "interrupted"
_MOST_FAULTS: Final = 2
"""So many faults of one case, and it is left out."""
_NOT_RESTORED: Final = (
    "{model} with {length} tokens: nothing was restored after a stop; docs/sessions.md says which "
    "conversations are saved, and when they come back"
)
_WARM_UP_SHARE: Final = 0.4
"""Of the time, at most."""
_CUT_SHORT: Final = "there was no time to warm everything up"
_OF_ALL: Final = frozenset({Scene.CACHED, Scene.NEW, Scene.SWAP, Scene.AWAKE})
"""Where the model can't be asked in these at first, it can't be in any."""


class Samples(Protocol):
    """What takes samples with one server."""

    def sample(self, case: Case, turn: int) -> Sample: ...


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    case: Case
    is_warm_up: bool
    done: int
    all: int
    left_s: float | None


class Run:
    """Measures a programme into a report, which is right whenever it ends."""

    def __init__(
        self,
        programme: Programme,
        stages: Mapping[str, Samples],
        report: Report,
        *,
        clock: Callable[[], float],
        limit_s: float,
        show: Callable[[Progress], None],
    ) -> None:
        self._programme = programme
        self._stages = stages
        self._report = report
        self._clock = clock
        now = clock()
        self._until = now + limit_s
        self._warm_until = now + limit_s * _WARM_UP_SHARE
        self._show = show
        self._pace = Pace()
        self._tried: set[Case] = set()
        self._faults: dict[Case, int] = {}

    def measure(self) -> None:
        """Measure all; KeyboardInterrupt ends it early, with what there is."""
        try:
            self._all()
        except KeyboardInterrupt:
            self._report.ended = INTERRUPTED

    def _all(self) -> None:
        ahead = [*self._programme.all()]
        total = len(ahead)
        while ahead:
            if self._clock() > self._until:
                self._report.ended = TIME_IS_UP
                return
            if not ahead[0][0] and self._clock() > self._warm_until:
                ahead = [(n, one) for n, one in ahead if n]
                self._report.notes.append(_CUT_SHORT)
            turn, case = ahead.pop(0)
            done, left_s = total - len(ahead) - 1, self._left_s(ahead, case)
            self._show(Progress(case, turn == 0, done, total, left_s))
            if hopeless := self._take(case, turn):
                ahead = [(n, one) for n, one in ahead if not hopeless(one)]

    def _left_s(self, ahead: Sequence[tuple[int, Case]], case: Case) -> float | None:
        """Return how long it will take from here on; None: nobody can know yet."""
        left_s = self._pace.left_s([case, *(one for _, one in ahead)])
        return None if left_s is None else min(left_s, max(0.0, self._until - self._clock()))

    def _take(self, case: Case, turn: int) -> Callable[[Case], bool] | None:
        """Take a sample; return which cases are hopeless after it, if any are."""
        began, is_first = self._clock(), case not in self._tried
        self._tried.add(case)
        sample = self._stages[case.server].sample(case, turn)
        if sample.fault:
            return self._failed(case, sample, is_first=is_first)
        self._pace.took(case, self._clock() - began)
        if case.scene is Scene.RESTORED and "restore" not in sample.phases_s:
            self._report.notes.append(_NOT_RESTORED.format(model=case.model, length=case.length))
            return case.__eq__  # it is what the page cache's scene shows, too
        if turn:
            self._report.samples.append(sample)
        return None

    def _failed(
        self, case: Case, sample: Sample, *, is_first: bool
    ) -> Callable[[Case], bool] | None:
        """Say what went wrong; return which cases are left out for it, if any are."""
        if case.by and is_first:
            # It sleeps by another way, or by this one anyway: nobody asked for it by name.
            return lambda one: (one.model, one.by) == (case.model, case.by)
        self._faults[case] = self._faults.get(case, 0) + 1
        fault = " | ".join(sample.fault.splitlines())
        where = f"{case.model} with {case.length} tokens, {case.state}, {case.server}"
        if is_first and case.scene in _OF_ALL:
            self._report.left_out.append(f"{where}, and all other states: {fault}")
            same = (case.server, case.model, case.length)
            return lambda one: (one.server, one.model, one.length) == same
        if is_first or self._faults[case] == _MOST_FAULTS:
            self._report.left_out.append(f"{where}: {fault}")
            # What doesn't sleep by its own way doesn't by another: that one asked them all.
            return lambda one: one == case or bool(one.by and one.model == case.model)
        self._report.samples.append(sample)
        return None
