"""Readable tables.

What isn't a terminal gets each row on one line, and all columns. A terminal that is too narrow for
that gets no column that is empty, and only long texts are wrapped; where even that doesn't fit, a
line a cell.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

Rows = Iterable[Sequence[str]]

_SHORT: Final = 24
"""Shorter texts aren't wrapped."""
_GAP: Final = 1
"""Between two columns."""
_WIDE: Final = 10_000
"""Wider than any table."""


def print_table(columns: Sequence[str], rows: Rows) -> None:
    """Print `rows` under `columns`."""
    console = _console()
    console.print(fitting(console, columns, list(rows)))


class LiveTable:
    """A table that changes where it stands; what isn't a terminal gets one after the other."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._console = _console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, rows: Rows) -> None:
        """Show `rows` in place of those before."""
        table = fitting(self._console, self._columns, list(rows))
        if self._console.is_terminal:
            self._live.update(table, refresh=True)
        else:
            self._console.print(table)


def _console() -> Console:
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_WIDE)


def fitting(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return the table as it is; narrower if it doesn't fit, and at last a line a cell."""
    table = _made_table(columns, rows)
    unbounded = console.options.update(max_width=_WIDE)
    if not rows or console.measure(table, options=unbounded).maximum <= console.width:
        return table
    filled = [
        (column.upper(), texts)
        for column, texts in zip(columns, zip(*rows, strict=True), strict=True)
        if any(texts)
    ]
    if sum(_least_width(*one) + _GAP for one in filled) - _GAP <= console.width:
        return _narrow_table(filled)
    return _listed(filled)


def _least_width(heading: str, texts: Sequence[str]) -> int:
    """Return how narrow a column can be without a short text or a word being torn."""
    parts = [part for text in texts for part in text.split(", " if _is_short(texts) else None)]
    widest = max(len(part) + 1 for part in parts)
    return max([min(_SHORT, widest), *map(len, heading.split())])


def _is_short(texts: Sequence[str]) -> bool:
    return max(len(part) for text in texts for part in text.split(", ")) < _SHORT


def _narrow_table(filled: Sequence[tuple[str, Sequence[str]]]) -> Table:
    """Return a table in which headings, and lists of short texts, go downwards."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = []
    for heading, texts in filled:
        is_short = _is_short(texts)
        heading_ = heading.replace(" ", "\n") if is_short else heading
        table.add_column(heading_, overflow="fold", no_wrap=is_short)
        cells.append([text.replace(", ", ",\n") if is_short else text for text in texts])
    for row in zip(*cells, strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _listed(filled: Sequence[tuple[str, Sequence[str]]]) -> Table:
    """Return a table with a line a cell: the heading, and what stands under it."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    headings = [heading for heading, _ in filled]
    for row in zip(*(texts for _, texts in filled), strict=True):
        for heading, text in zip(headings, row, strict=True):
            if text:
                table.add_row(heading, Text(text))
        table.add_row("", "")
    return table


def _made_table(columns: Sequence[str], rows: Rows) -> Table:
    """Return `rows` under `columns`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
