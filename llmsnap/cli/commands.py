"""The group of all commands; each is imported when it is run."""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword
from typing import Final

import click

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
"""The module of each command, which is the attribute of its name in there.

A word of Python's own has an underscore behind it there.
"""


class Commands(click.Group):
    """A group that imports a command's module only for that command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order that help shows them."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None when there is none of that name."""
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(import_module(f"llmsnap.cli.{module}"), name)
        return command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="llmsnap", message="%(prog)s %(version)s")
def commands() -> None:
    """Keep many local LLM servers at hand on one machine that holds one or two of them.

    Without a command, `serve` is run: llmsnap --config config.yaml --listen localhost:8080
    """
