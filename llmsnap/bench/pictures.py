"""Which plots a report has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

from llmsnap.bench.plots import Palette, Point, bars, lines, stacks
from llmsnap.bench.report import Report
from llmsnap.bench.samples import OURS, Case, Sample, Scene, Spread, by_case, good

PHASES: Final = ("queue", "drain", "evict", "start", "wake", "restore", "prefill")
"""In the order in which they follow each other; see `Server-Timing` in docs/api.md."""
_REST: Final = "head to first text"
_STOPPED: Final = (Scene.COLD, Scene.CACHED)
_KEPT: Final = (Scene.RESTORED, Scene.ASLEEP, Scene.SWAP)
_BEFORE: Final = "before: stop and start"
_AFTER: Final = "after: llmsnap"
_MIB: Final = 2**20

Cases = Mapping[Case, Sequence[Sample]]


def plots(report: Report) -> dict[str, str]:
    """Return the SVG of each plot by its title; colours mean the same in all of them."""
    cases = {case: well for case, all_ in by_case(report.samples).items() if (well := good(all_))}
    cases = dict(sorted(cases.items(), key=lambda item: item[0].place))
    if report.kind == "kv":
        return _of_variants(cases, report.settings.get("kv_bytes", {}))
    return _of_models(cases)


def _of_models(cases: Cases) -> dict[str, str]:
    """Return plots of each model, in which states are compared."""
    curves = Palette(
        [*dict.fromkeys(_curve(case) for case in sorted(cases, key=lambda case: case.step))]
    )
    told = (name for samples in cases.values() for one in samples for name in one.phases_s)
    phases = Palette([*dict.fromkeys([*PHASES, *told]), _REST])
    found = {}
    for model in dict.fromkeys(case.model for case in cases):
        mine = {case: samples for case, samples in cases.items() if case.model == model}
        found[f"{model}: time to the first token"] = _times(_curves(mine, _curve), curves)
        if phased := _phases(mine):
            found[f"{model}: what it is made of"] = stacks(phased, phases)
        if both := _before_and_after(mine):
            found[f"{model}: a switch, before and after"] = stacks(both, Palette([_BEFORE, _AFTER]))
    return found


def _of_variants(cases: Cases, kv_bytes: Mapping[str, int | None]) -> dict[str, str]:
    """Return plots of each state, in which settings of the cache are compared."""
    names = Palette([*dict.fromkeys(case.model for case in cases)])
    found = {}
    for scene in dict.fromkeys(case.scene for case in sorted(cases, key=lambda case: case.step)):
        here = {case: samples for case, samples in cases.items() if case.scene == scene}
        curves = _curves(here, lambda case: case.model)
        found[f"{scene}: time to the first token"] = _times(curves, names)
    longest = max((case.length for case in cases), default=0)
    rates = {
        case.model: rate.median
        for case, samples in cases.items()
        if (case.scene, case.length) == (Scene.NEW, longest)
        and (rate := Spread.of(one.tokens_per_s for one in samples))
    }
    if rates:
        found[f"writing after {longest} tokens"] = bars(rates, names, "tokens/s")
    if sizes := {name: size / _MIB for name in names.names if (size := kv_bytes.get(name))}:
        found["the cache's size"] = bars(sizes, names, "MiB")
    return found


def _times(curves: Mapping[str, Sequence[Point]], palette: Palette) -> str:
    """Return lines over the lengths; bars where there is but one."""
    if len({point.x for curve in curves.values() for point in curve}) > 1:
        return lines(curves, palette, "tokens of context", "seconds")
    return bars({name: curve[0].middle for name, curve in curves.items()}, palette, "s")


def _curve(case: Case) -> str:
    return f"{case.state}, {case.server}"


def _curves(cases: Cases, name_of: Callable[[Case], str]) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for case in sorted(cases, key=lambda case: (case.step, case.length)):
        if first := Spread.of(one.first_s for one in cases[case]):
            point = Point(case.length, first.median, first.least, first.most)
            curves.setdefault(name_of(case), []).append(point)
    return curves


def _phases(cases: Cases) -> dict[str, dict[str, float]]:
    """Return the medians of each phase, which ours alone tells, and of the rest to the first text.

    llama-server sends the head of a stream, with which the phases end, before it has read a prompt.
    """
    rows = {}
    for case, samples in cases.items():
        if names := dict.fromkeys(name for one in samples for name in one.phases_s):
            parts = [{n: one.phases_s.get(n, 0.0) for n in names} for one in samples]
            for part, one in zip(parts, samples, strict=True):
                part[_REST] = max(0.0, (one.first_s or 0.0) - sum(part.values()))
            label = f"{case.length}, {case.state}"
            rows[label] = {n: median(part[n] for part in parts) for n in (*names, _REST)}
    return rows


def _before_and_after(cases: Cases) -> dict[str, dict[str, float]]:
    """Return how long it takes to the first token without llmsnap's ways back, and with them."""
    rows = {}
    for length in dict.fromkeys(case.length for case in cases):
        here = {case: samples for case, samples in cases.items() if case.length == length}
        before = [case for case in here if case.scene in _STOPPED or _is_their_swap(case)]
        after = [case for case in here if case.server == OURS and case.scene in _KEPT]
        for what, cases_ in ((_BEFORE, before), (_AFTER, after)) if before and after else ():
            for case in cases_:
                if first := Spread.of(one.first_s for one in here[case]):
                    whose = "" if case.server == OURS else f", {case.server}"
                    rows[f"{length}, {case.state}{whose}"] = {what: first.median}
    return rows


def _is_their_swap(case: Case) -> bool:
    return case.scene is Scene.SWAP and case.server != OURS
