"""What benchmarks show while they run, and the files they leave."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from llmsnap.bench.documents import markdown, sheet
from llmsnap.bench.page import page
from llmsnap.bench.report import Report, write, write_text
from llmsnap.bench.rows import COLUMNS, table
from llmsnap.bench.run import INTERRUPTED, Progress
from llmsnap.bench.swap import SwapBench
from llmsnap.cli.tables import fitting, print_table
from llmsnap.config.quantities import span_text
from llmsnap.errors import LlmsnapError

_SOME_FAILED: Final = 3
_INTERRUPTED: Final = 130
_FORMS: Final[dict[str, Callable[[Report], str]]] = {
    "csv": sheet,
    "markdown": markdown,
    "html": page,
}

Command = TypeVar("Command", bound=Callable[..., Any])


class Screen:
    """The report as it grows, on a terminal; elsewhere a line a step, on standard error."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show what is measured now, and what was."""
        line = progress_line(progress)
        if not self._is_terminal:
            click.echo(line, err=True)
            return
        rows = table(self._report)
        shown = [fitting(self._live.console, COLUMNS, rows)] if rows else []
        # The line comes first: what a terminal has no room for is left out at the end.
        self._live.update(Group(Text(line, style="dim"), *shown), refresh=True)

    @property
    def _is_terminal(self) -> bool:
        return self._live.console.is_terminal


def run(bench: SwapBench) -> None:
    """Run it, and show how far it is."""
    with Screen(bench.report) as screen:
        bench.run(screen.show)


def say(line: str) -> None:
    """Tell what goes on, beside the report."""
    click.echo(line, err=True)


def progress_line(progress: Progress) -> str:
    """Return how far a run is, in words."""
    case = progress.case
    left = "" if progress.left_s is None else f", about {span_text(progress.left_s)} left"
    return (
        f"{progress.done} of {progress.all}{left}: {case.model}, {case.length} tokens, "
        f"{case.state}, {case.server}" + (" (to warm up)" if progress.is_warm_up else "")
    )


def takes_turns(command: Command) -> Command:
    """Give a command `--turns` and `--time`."""
    command = click.option(
        "--time",
        "limit_s",
        default=1800.0,
        show_default=True,
        type=click.FloatRange(0, min_open=True),
        help="Seconds for all, at most.",
    )(command)
    return click.option(
        "--turns", default=3, show_default=True, type=click.IntRange(1), help="Turns a case."
    )(command)


def writes_reports(command: Command) -> Command:
    """Give a command `--json`, `--csv`, `--markdown` and `--html`; for `finish`."""
    for form in ("html", "markdown", "csv", "json"):
        command = click.option(
            f"--{form}",
            f"{form}_file",
            type=click.Path(path_type=Path, dir_okay=False),
            callback=_writable,
            help=f"Write the report as {form.upper() if form != 'markdown' else 'Markdown'}.",
        )(command)
    return command


def _writable(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Return `path`; refuse now what would lose a whole run when it is to be written."""
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{str(path)!r} can't be written; is its folder there?")
    return path


def finish(report: Report, files: dict[str, Path | None]) -> None:
    """Print the report, write the files of `writes_reports`, and leave with the exit code."""
    if rows := table(report):
        print_table(COLUMNS, rows)
    for title, remarks in report.remarks():
        for remark in remarks:
            click.echo(f"{title.lower()}: {remark}")
    if report.ended:
        click.echo(f"not all was measured: {report.ended}", err=True)
    written = [path for path in files.values() if path]
    for option, path in files.items():
        form = option.removesuffix("_file")
        if path and form == "json":
            write(report, path)
        elif path:
            write_text(path, _FORMS[form](report))
    if written:
        click.echo(f"written: {', '.join(map(str, written))}", err=True)
    if report.ended == INTERRUPTED:
        sys.exit(_INTERRUPTED)
    if not any(not one.fault for one in report.samples):
        raise LlmsnapError("nothing could be measured")
    if report.ended or report.left_out or any(one.fault for one in report.samples):
        sys.exit(_SOME_FAILED)
