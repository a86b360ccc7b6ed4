"""`llmsnap bench`: what a switch costs on this machine, and what the cache's settings buy."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

_MODULES: Final = {"swap": "bench_swap", "kv": "bench_kv", "compare": "bench_compare"}


class Benches(click.Group):
    """A group that imports a benchmark only when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order that help shows them."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None when there is none of that name."""
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"llmsnap.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.command(cls=Benches)
def bench() -> None:
    """Measure on your models and your machine.

    Exit codes: 0 all was measured, 1 nothing was, 2 the command line makes no sense, 3 some of it
    couldn't be measured, 130 somebody stopped it; what was measured until then is reported.
    """
