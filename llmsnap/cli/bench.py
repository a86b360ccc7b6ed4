"""`llmsnap bench`: what a switch costs on this machine, and what the cache's settings buy."""

from __future__ import annotations

from typing import Final

import click

from llmsnap.cli.lazy import LazyGroup

_MODULES: Final = {"swap": "bench_swap", "kv": "bench_kv", "compare": "bench_compare"}


@click.command(cls=LazyGroup, modules=_MODULES)
def bench() -> None:
    """Measure on your models and your machine.

    Exit codes: 0 all was measured, 1 nothing was, 2 the command line makes no sense, 3 some of it
    couldn't be measured, 130 somebody stopped it; what was measured until then is reported.
    """
