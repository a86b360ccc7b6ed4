"""Options of the commands that talk to a running proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from llmsnap.client.proxy import DEFAULT_URL

Command = TypeVar("Command", bound=Callable[..., Any])


def talks_to_proxy(command: Command) -> Command:
    """Give a command the options `--url` and `--key`; it gets them as `url` and `key`."""
    url = click.option(
        "--url", envvar="LLMSNAP_URL", default=DEFAULT_URL, show_default=True, help="The proxy."
    )
    key = click.option(
        "--key", envvar="LLMSNAP_API_KEY", default="", help="An API key, if it wants one."
    )
    return url(key(command))


def as_json(command: Command) -> Command:
    """Give a command the switch `--json`; it gets it as `json_wanted`."""
    option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
    return option(command)
