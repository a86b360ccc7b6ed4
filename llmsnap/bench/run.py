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
_OF_ALL: Final = frozenset({Scene.CACHED, Scene.NEW, Scene.SWAP, Scene.AWAKE})
"""Where the model can't be asked in these at first, it can't be in any."""


class Samples(Protocol):
    """What takes samples with one server."""

    def sample(self, case: Case, turn: int) -> Sample: ...


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    case: Case
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
        self._until = clock() + limit_s
        self._show = show
        self._pace = Pace()
        self._faults: dict[Case, int] = {}

    def measure(self) -> None:
        """Measure all; KeyboardInterrupt ends it early, with what there is."""
        try:
            self._all()
        except KeyboardInterrupt:
            self._report.ended = INTERRUPTED

    def _all(self) -> None:
        ahead = [(n, case) for n in range(self._programme.turns + 1) for case in self._cases(n)]
        total = len(ahead)
        while ahead:
            if self._clock() > self._until:
                self._report.ended = TIME_IS_UP
                return
            turn, case = ahead.pop(0)
            left_s = self._pace.left_s([case, *(one for _, one in ahead)])
            self._show(Progress(case, total - len(ahead) - 1, total, left_s))
            if hopeless := self._take(case, turn):
                ahead = [(n, one) for n, one in ahead if not hopeless(one)]

    def _cases(self, turn: int) -> Sequence[Case]:
        """Return those of a turn; the first is to warm up, and needs nothing cold."""
        cases = self._programme.turn()
        return [case for case in cases if turn or case.scene is not Scene.COLD]

    def _take(self, case: Case, turn: int) -> Callable[[Case], bool] | None:
        """Take a sample; return which cases are hopeless after it, if any are."""
        began = self._clock()
        sample = self._stages[case.server].sample(case, turn)
        if case.scene is Scene.RESTORED and not sample.fault and "restore" not in sample.phases_s:
            return case.__eq__  # it is what the page cache's scene shows, too
        if turn:
            self._report.samples.append(sample)
        if not sample.fault:
            self._pace.took(case, self._clock() - began)
            return None
        return self._hopeless(case, sample.fault, is_first=turn == 0)

    def _hopeless(self, case: Case, fault: str, *, is_first: bool) -> Callable[[Case], bool] | None:
        """Say what went wrong; return which cases are left out for it."""
        self._faults[case] = self._faults.get(case, 0) + 1
        fault = " | ".join(fault.splitlines())
        where = f"{case.model} with {case.length} tokens, {case.scene}, {case.server}"
        if is_first and case.scene in _OF_ALL:
            self._report.left_out.append(f"{where}, and all other states: {fault}")
            same = (case.server, case.model, case.length)
            return lambda one: (one.server, one.model, one.length) == same
        if is_first or self._faults[case] == _MOST_FAULTS:
            self._report.left_out.append(f"{where}: {fault}")
            return case.__eq__
        return None
