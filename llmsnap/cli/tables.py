"""Readable tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print `rows` under `columns`; what isn't a terminal gets each row on one line."""
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console = Console(highlight=False, width=10_000)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
