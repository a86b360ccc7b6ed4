"""A report as one page of HTML with its plots, which needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import median
from typing import Final

from llmsnap.bench.documents import facts
from llmsnap.bench.plots import Palette, Point, lines, stacks
from llmsnap.bench.report import Report
from llmsnap.bench.rows import COLUMNS, table
from llmsnap.bench.samples import OURS, Case, Sample, Scene, Spread, by_case, good

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}"
    "svg{max-width:100%;height:auto}.wide{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:3px 8px;border-bottom:1px solid #8886;text-align:left}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#16181c}}"
)
PHASES: Final = ("queue", "drain", "evict", "start", "wake", "restore", "prefill")
"""In the order in which they follow each other; see `Server-Timing` in docs/api.md."""
_REST: Final = "head to first text"
_STOPPED: Final = (Scene.COLD, Scene.CACHED)
_KEPT: Final = (Scene.RESTORED, Scene.ASLEEP, Scene.SWAP)
_BEFORE: Final = "before: stop and start"
_AFTER: Final = "after: llmsnap"


def page(report: Report) -> str:
    """Return the page."""
    body = [f"<p>{escape(sentence)}</p>" for sentence in facts(report)]
    for title, svg in plots(report).items():
        body.append(f"<h2>{escape(title)}</h2>{svg}")
    body.append("<h2>All cases</h2>" + _table(COLUMNS, table(report)))
    for title, notes in report.remarks():
        if notes:
            body.append(f"<h2>{title}</h2><ul>{''.join(f'<li>{escape(n)}' for n in notes)}</ul>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>llmsnap bench {escape(report.kind)}</title><style>{_STYLE}</style>"
        f"<h1>llmsnap bench {escape(report.kind)}</h1>{''.join(body)}</html>\n"
    )


def plots(report: Report) -> dict[str, str]:
    """Return the SVG of each plot by its title; colours mean the same in all of them."""
    cases = {case: well for case, all_ in by_case(report.samples).items() if (well := good(all_))}
    cases = dict(sorted(cases.items(), key=lambda item: item[0].place))
    names = dict.fromkeys(_curve(case) for case in sorted(cases, key=_by_state))
    told = (name for samples in cases.values() for one in samples for name in one.phases_s)
    parts = dict.fromkeys([*PHASES, *told])
    found = {}
    for model in dict.fromkeys(case.model for case in cases):
        mine = {case: samples for case, samples in cases.items() if case.model == model}
        found[f"{model}: time to the first token"] = lines(
            _curves(mine), Palette([*names]), "tokens of context", "seconds"
        )
        if phased := _phases(mine):
            found[f"{model}: what it is made of"] = stacks(phased, Palette([*parts, _REST]))
        if both := _before_and_after(mine):
            found[f"{model}: a switch, before and after"] = stacks(both, Palette([_BEFORE, _AFTER]))
    return found


def _by_state(case: Case) -> tuple[int, str, str]:
    return list(Scene).index(case.scene), case.by, case.server


def _curve(case: Case) -> str:
    return f"{case.state}, {case.server}"


def _curves(cases: Mapping[Case, Sequence[Sample]]) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for case in sorted(cases, key=lambda case: (_by_state(case), case.length)):
        if first := Spread.of(one.first_s for one in cases[case]):
            point = Point(case.length, first.median, first.least, first.most)
            curves.setdefault(_curve(case), []).append(point)
    return curves


def _phases(cases: Mapping[Case, Sequence[Sample]]) -> dict[str, dict[str, float]]:
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


def _before_and_after(cases: Mapping[Case, Sequence[Sample]]) -> dict[str, dict[str, float]]:
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


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}' for cell in row)}" for row in rows)
    return f'<div class="wide"><table><tr>{head}{body}</table></div>'
