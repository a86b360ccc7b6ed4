"""`llmsnap bench compare`: two reports, case by case."""

from __future__ import annotations

from pathlib import Path

import click

from llmsnap.bench.documents import compared, facts, same_machine
from llmsnap.bench.report import read
from llmsnap.cli.places import FILE
from llmsnap.cli.tables import print_table
from llmsnap.errors import LlmsnapError


@click.command()
@click.argument("before", type=FILE)
@click.argument("after", type=FILE)
def compare(before: Path, after: Path) -> None:
    """Show how AFTER differs from BEFORE.

    Both are reports that --json wrote. "faster" and "slower" stand where all samples of one are
    beyond all of the other.
    """
    older, newer = read(before), read(after)
    rows = compared(older, newer)
    if not rows:
        raise LlmsnapError(f"{before} and {after} have no case in common")
    if not same_machine(older, newer):
        click.echo("warning: they were measured on different machines", err=True)
        for report in (older, newer):
            click.echo(f"warning: {facts(report)[0]}", err=True)
    columns = ("model", "context", "state", "server", "before", "after", "as fast", "")
    print_table(columns, rows)
