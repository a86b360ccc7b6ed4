"""Readable tables.

What isn't a terminal gets each row on one line, and all columns. A terminal that is too narrow for
that gets no column that is empty, and only long texts are wrapped.
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
"""Texts of so many characters aren't wrapped."""
_WIDE: Final = 10_000
"""Wider than any table."""


def print_table(columns: Sequence[str], rows: Rows) -> None:
    """Print `rows` under `columns`."""
    console = _console()
    console.print(_fitting(console, columns, list(rows)))


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
        table = _fitting(self._console, self._columns, list(rows))
        if self._console.is_terminal:
            self._live.update(table, refresh=True)
        else:
            self._console.print(table)


def _console() -> Console:
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_WIDE)


def _fitting(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return the table as it is, or narrower if it doesn't fit."""
    table = made_table(columns, rows)
    unbounded = console.options.update(max_width=_WIDE)
    if console.measure(table, options=unbounded).maximum <= console.width:
        return table
    return _narrow_table(columns, rows)


def _narrow_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return the table without empty columns; headings, and lists of short texts, go downwards."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = []
    for column, texts in zip(columns, zip(*rows, strict=True), strict=True):
        if not any(texts):
            continue
        parts = [part for text in texts for part in text.split(", ")]
        is_short = max(map(len, parts)) <= _SHORT
        heading = column.upper().replace(" ", "\n") if is_short else column.upper()
        table.add_column(heading, overflow="fold", no_wrap=is_short)
        cells.append([text.replace(", ", ",\n") if is_short else text for text in texts])
    for row in zip(*cells, strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table


def made_table(columns: Sequence[str], rows: Rows) -> Table:
    """Return `rows` under `columns`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
