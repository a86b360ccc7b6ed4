"""A group of commands whose modules are imported only for the command that is run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose `modules` are those of its commands, below `llmsnap.cli`.

    A command is the attribute of its name in there; a word of Python's own has an underscore
    behind it.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order that help shows them."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None when there is none of that name."""
        module = self._modules.get(cmd_name)
        if module is None:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(import_module(f"llmsnap.cli.{module}"), name)
        return command
