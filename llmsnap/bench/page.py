"""A report as one page of HTML with its plots, which needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from statistics import median
from typing import Final

from llmsnap.bench.documents import facts
from llmsnap.bench.plots import Point, lines, stacks
from llmsnap.bench.report import Report
from llmsnap.bench.rows import COLUMNS, table
from llmsnap.bench.samples import OURS, Case, Sample, Scene, Spread, by_case, good

_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:3px 8px;border-bottom:1px solid #ddd;text-align:left}"
)
_REST: Final = "head to first text"
_STOPPED = (Scene.CACHED, Scene.COLD)


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
    """Return the SVG of each plot by its title."""
    cases = {case: well for case, all_ in by_case(report.samples).items() if (well := good(all_))}
    found = {}
    for model in dict.fromkeys(case.model for case in cases):
        mine = {case: samples for case, samples in cases.items() if case.model == model}
        found[f"{model}: time to the first token"] = lines(
            _curves(mine), "tokens of context", "seconds"
        )
        if phased := _phases(mine):
            found[f"{model}: what it is made of"] = stacks(phased)
        if both := _before_and_after(mine):
            found[f"{model}: a switch, before and after"] = stacks(both)
    return found


def _curves(cases: dict[Case, list[Sample]]) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for case, samples in sorted(cases.items()):
        if first := Spread.of(one.first_s for one in samples):
            name = f"{case.scene}, {case.server}"
            point = Point(case.length, first.median, first.least, first.most)
            curves.setdefault(name, []).append(point)
    return curves


def _phases(cases: dict[Case, list[Sample]]) -> dict[str, dict[str, float]]:
    """Return the medians of each phase, which ours alone tells, and of the rest to the first text.

    llama-server sends the head of a stream, with which the phases end, before it has read a prompt.
    """
    rows = {}
    for case, samples in sorted(cases.items()):
        if names := dict.fromkeys(name for one in samples for name in one.phases_s):
            parts = [{n: one.phases_s.get(n, 0.0) for n in names} for one in samples]
            for part, one in zip(parts, samples, strict=True):
                part[_REST] = max(0.0, (one.first_s or 0.0) - sum(part.values()))
            label = f"{case.length}, {case.scene}"
            rows[label] = {n: median(part[n] for part in parts) for n in (*names, _REST)}
    return rows


def _before_and_after(cases: dict[Case, list[Sample]]) -> dict[str, dict[str, float]]:
    """Return how long a stop and a start takes to the first token, and what llmsnap has for it."""
    rows = {}
    for length in dict.fromkeys(case.length for case in sorted(cases)):
        here = {
            case.scene: samples
            for case, samples in cases.items()
            if case.length == length and case.server == OURS
        }
        after = [scene for scene in (Scene.RESTORED, Scene.ASLEEP) if scene in here]
        before = [scene for scene in _STOPPED if scene in here]
        if before and after:
            for scene in (*before, *after):
                if first := Spread.of(one.first_s for one in here[scene]):
                    rows[f"{length}, {scene}"] = {"to the first token": first.median}
    return rows


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}' for cell in row)}" for row in rows)
    return f"<table><tr>{head}{body}</table>"
