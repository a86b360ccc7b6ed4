"""The group of all commands; each is imported when it is run."""

from __future__ import annotations

from typing import Final

import click

from llmsnap.cli.lazy import LazyGroup

_MODULES: Final = {
    "serve": "serve",
    "check": "check",
    "import": "imports",
    "doctor": "doctor",
    "ps": "ps",
    "load": "orders",
    "wake": "orders",
    "sleep": "orders",
    "unload": "orders",
    "reload": "orders",
    "release": "release",
    "resume": "release",
    "handover": "orders",
    "logs": "logs",
    "sessions": "sessions",
    "chat": "chat",
    "bench": "bench",
    "demo": "demo",
}


@click.command(
    cls=LazyGroup, modules=_MODULES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="llmsnap", message="%(prog)s %(version)s")
def commands() -> None:
    """Keep many local LLM servers at hand on one machine that holds one or two of them.

    Without a command, `serve` is run: llmsnap --config config.yaml --listen localhost:8080
    """
