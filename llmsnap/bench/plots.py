"""Plots as SVG, drawn by ourselves: lines, and stacked bars."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2, log10
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
_COLUMNS: Final = 3
"""Of a legend."""
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#444}.grid{stroke:#ddd}.ground{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}.grid{stroke:#444}.ground{fill:#16181c}}"
)


@dataclass(frozen=True)
class Point:
    """A median over `x`, with the least and the most."""

    x: int
    middle: float
    least: float
    most: float


@dataclass(frozen=True)
class Palette:
    """A colour for each name, the same in all plots that share it."""

    names: Sequence[str]

    def colour(self, name: str) -> str:
        """Return it; after the last the first comes again."""
        return COLOURS[self.names.index(name) % len(COLOURS)]

    def dashes(self, name: str) -> str:
        """Return what tells names of the same colour apart, as an attribute of a line."""
        rounds = self.names.index(name) // len(COLOURS)
        return f' stroke-dasharray="{6 // rounds} 4"' if rounds else ""


@dataclass(frozen=True)
class _Scale:
    """Times from bottom to top, each step as many times as long as the one below."""

    low: float
    high: float

    @classmethod
    def over(cls, points: Sequence[Point]) -> _Scale:
        """Return one on which all points are."""
        least = min(point.least for point in points) or 1e-3
        most = max(point.most for point in points) or 1.0
        return cls(least / 1.3, max(most, least * 2) * 1.2)

    def up(self, value: float) -> float:
        """Return where a value is."""
        share = log10(max(value, self.low) / self.low) / log10(self.high / self.low)
        return _TOP + _PLOT_HEIGHT * (1 - share)

    def marks(self) -> list[float]:
        """Return the round values on it."""
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        steps = (1, 2, 5) if self.high / self.low < 1000 else (1,)
        values = [step * 10.0**decade for decade in decades for step in steps]
        return [value for value in values if self.low <= value <= self.high]


def lines(
    series: Mapping[str, Sequence[Point]], palette: Palette, x_label: str, y_label: str
) -> str:
    """Return one line a series; on both axes equal steps are equal factors."""
    points = [point for each in series.values() for point in each]
    marks = sorted({point.x for point in points})
    low, high = log2(marks[0]), log2(marks[-1])
    scale = _Scale.over(points)
    legend_at = _TOP + _PLOT_HEIGHT + 56

    def across(x: float) -> float:
        share = (log2(x) - low) / (high - low) if high > low else 0.5
        return _LEFT + 12 + share * (_WIDTH - _LEFT - _RIGHT - 24)

    parts = _grid(scale)
    for mark in marks:
        parts.append(_text(across(mark), _TOP + _PLOT_HEIGHT + 16, str(mark), "middle"))
    parts.append(_text(_WIDTH / 2, _TOP + _PLOT_HEIGHT + 34, x_label, "middle"))
    parts.append(_text(_LEFT - 60, 14, y_label))
    for name, each in series.items():
        parts += _line(name, each, palette, across, scale.up)
    parts += _legend(list(series), palette, legend_at)
    return _svg(parts, legend_at + _legend_height(series))


def _line(
    name: str,
    points: Sequence[Point],
    palette: Palette,
    across: Callable[[float], float],
    up: Callable[[float], float],
) -> list[str]:
    colour = palette.colour(name)
    path = " ".join(f"{across(one.x):.1f},{up(one.middle):.1f}" for one in points)
    parts = [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"'
        f"{palette.dashes(name)}/>"
    ]
    for one in points:
        x, title = f"{across(one.x):.1f}", f"{name}, {one.x}: {one.middle:.3g} s"
        parts.append(_bar(x, up(one.least), up(one.most), colour))
        parts.append(
            f'<circle cx="{x}" cy="{up(one.middle):.1f}" r="3.5" fill="{colour}">'
            f"<title>{escape(title)}</title></circle>"
        )
    return parts


def bars(values: Mapping[str, float], palette: Palette, unit: str) -> str:
    """Return a horizontal bar a value, in its own colour."""
    return _rows({name: {name: value} for name, value in values.items()}, palette, unit, [])


def stacks(rows: Mapping[str, Mapping[str, float]], palette: Palette) -> str:
    """Return a horizontal bar a row, of parts one after the other, in seconds."""
    there = {name for parts in rows.values() for name in parts}
    return _rows(rows, palette, "s", [name for name in palette.names if name in there])


def _rows(
    rows: Mapping[str, Mapping[str, float]], palette: Palette, unit: str, legend: Sequence[str]
) -> str:
    longest = max((sum(parts.values()) for parts in rows.values()), default=0.0) or 1.0
    label_width = min(340, 16 + 7 * max(map(len, rows), default=0))
    scale = (_WIDTH - label_width - 110) / longest
    drawn: list[str] = []
    for number, (label, parts) in enumerate(rows.items()):
        y, x = 8 + number * _ROW, float(label_width)
        drawn.append(_text(label_width - 8, y + 14, label, "end"))
        for name in (name for name in palette.names if name in parts):
            width = parts[name] * scale
            title = escape(f"{label}: {name} {parts[name]:.3g} {unit}")
            drawn.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 6}" '
                f'fill="{palette.colour(name)}"><title>{title}</title></rect>'
            )
            x += width
        drawn.append(_text(x + 6, y + 14, f"{sum(parts.values()):.3g} {unit}"))
    bottom = 8 + len(rows) * _ROW
    if legend:
        drawn += _legend(legend, palette, bottom + 18)
        bottom += 18 + _legend_height(legend)
    return _svg(drawn, bottom)


def _grid(scale: _Scale) -> list[str]:
    parts = []
    for value in scale.marks():
        y = f"{scale.up(value):.1f}"
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" class="grid"/>')
        parts.append(_text(_LEFT - 8, scale.up(value) + 4, f"{value:g}", "end"))
    return parts


def _bar(x: str, y1: float, y2: float, colour: str) -> str:
    return f'<line x1="{x}" x2="{x}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _legend(names: Sequence[str], palette: Palette, top: float) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        x, y = 20 + number % _COLUMNS * (_WIDTH - 40) / _COLUMNS, top + number // _COLUMNS * 18
        parts.append(
            f'<line x1="{x:.0f}" x2="{x + 12:.0f}" y1="{y - 4}" y2="{y - 4}" '
            f'stroke="{palette.colour(name)}" stroke-width="10"{palette.dashes(name)}/>'
        )
        parts.append(_text(x + 18, y, name))
    return parts


def _legend_height(names: Collection[str]) -> int:
    return 18 * ceil(len(names) / _COLUMNS) + 4


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str], height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" height="{height:.0f}"><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" class="ground"/>{"".join(parts)}</svg>'
    )
