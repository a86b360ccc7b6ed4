"""Readable tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

Rows = Iterable[Sequence[str]]


def print_table(columns: Sequence[str], rows: Rows) -> None:
    """Print `rows` under `columns`; what isn't a terminal gets each row on one line."""
    _console().print(made_table(columns, rows))


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
        table = made_table(self._columns, rows)
        if self._console.is_terminal:
            self._live.update(table, refresh=True)
        else:
            self._console.print(table)


def _console() -> Console:
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=10_000)


def made_table(columns: Sequence[str], rows: Rows) -> Table:
    """Return `rows` under `columns`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
