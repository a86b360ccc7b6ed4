"""Plots as SVG, drawn by ourselves: lines, and stacked bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log2
from typing import Final

COLOURS: Final = (
    "#4c78a8",
    "#f58518",
    "#54a24b",
    "#e45756",
    "#72b7b2",
    "#b279a2",
    "#9d755d",
    "#eeca3b",
)
_WIDTH: Final = 760
_LEFT: Final = 70
_RIGHT: Final = 20
_TOP: Final = 24
_ROW: Final = 24
_PLOT_HEIGHT: Final = 240


@dataclass(frozen=True)
class Point:
    """A median over `x`, with the least and the most."""

    x: int
    middle: float
    least: float
    most: float


def lines(series: Mapping[str, Sequence[Point]], x_label: str, y_label: str) -> str:
    """Return one line a series; `x` doubles from mark to mark, as lengths of contexts do."""
    points = [point for each in series.values() for point in each]
    marks = sorted({point.x for point in points})
    low, high = log2(marks[0]), log2(marks[-1])
    top = max(point.most for point in points) * 1.05 or 1.0
    legend_at = _TOP + _PLOT_HEIGHT + 56

    def across(x: float) -> float:
        share = (log2(x) - low) / (high - low) if high > low else 0.5
        return _LEFT + 12 + share * (_WIDTH - _LEFT - _RIGHT - 24)

    def up(y: float) -> float:
        return _TOP + _PLOT_HEIGHT * (1 - y / top)

    parts = _grid(top, up)
    for mark in marks:
        parts.append(_text(across(mark), _TOP + _PLOT_HEIGHT + 16, str(mark), "middle"))
    parts.append(_text(_WIDTH / 2, _TOP + _PLOT_HEIGHT + 34, x_label, "middle"))
    parts.append(_text(_LEFT - 60, 14, y_label))
    for number, (name, each) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(one.x):.1f},{up(one.middle):.1f}" for one in each)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for one in each:
            x, title = f"{across(one.x):.1f}", f"{name}, {one.x}: {one.middle:.3g} s"
            parts.append(_bar(x, up(one.least), up(one.most), colour))
            parts.append(
                f'<circle cx="{x}" cy="{up(one.middle):.1f}" r="3.5" fill="{colour}">'
                f"<title>{escape(title)}</title></circle>"
            )
    parts += _legend(list(series), legend_at)
    return _svg(parts, legend_at + 18 * ceil(len(series) / 3) + 4)


def stacks(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Return a horizontal bar a row, of parts one after the other, in seconds."""
    names = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    longest = max((sum(parts.values()) for parts in rows.values()), default=0.0) or 1.0
    label_width = min(340, 16 + 7 * max(map(len, rows), default=0))
    scale = (_WIDTH - label_width - 80) / longest
    drawn: list[str] = []
    for number, (label, parts) in enumerate(rows.items()):
        y, x = 8 + number * _ROW, float(label_width)
        drawn.append(_text(label_width - 8, y + 14, label, "end"))
        for name, seconds in parts.items():
            width = seconds * scale
            title = escape(f"{label}: {name} {seconds:.3g} s")
            drawn.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 6}" '
                f'fill="{COLOURS[names.index(name) % len(COLOURS)]}"><title>{title}</title></rect>'
            )
            x += width
        drawn.append(_text(x + 6, y + 14, f"{sum(parts.values()):.3g} s"))
    legend_at = 8 + len(rows) * _ROW + 18
    drawn += _legend(names, legend_at)
    return _svg(drawn, legend_at + 18 * ceil(len(names) / 3) + 4)


def _grid(top: float, up: Callable[[float], float]) -> list[str]:
    parts = []
    for step in range(5):
        value = top * step / 4
        y = f"{up(value):.1f}"
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" class="grid"/>')
        parts.append(_text(_LEFT - 8, up(value) + 4, f"{value:.2g}", "end"))
    return parts


def _bar(x: str, y1: float, y2: float, colour: str) -> str:
    return f'<line x1="{x}" x2="{x}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _legend(names: Sequence[str], top: float) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        x, y = 20 + number % 3 * (_WIDTH - 40) / 3, top + number // 3 * 18
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{x:.0f}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 16, y, name))
    return parts


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str], height: float) -> str:
    style = "text{font:12px sans-serif;fill:#444}.grid{stroke:#ddd}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" height="{height:.0f}"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>'
    )
