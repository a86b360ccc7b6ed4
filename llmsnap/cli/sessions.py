"""`llmsnap sessions`: the saved conversations of a running proxy."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import click

from llmsnap.cli.client import as_json, talks_to_proxy
from llmsnap.client.proxy import Client
from llmsnap.config.quantities import rough_size

_COLUMNS: Final = ("id", "model", "tokens", "messages", "size", "used")


@click.group()
def sessions() -> None:
    """Show, delete and try saved conversations."""


@sessions.command(name="ls")
@click.argument("model", required=False)
@talks_to_proxy
@as_json
def list_(model: str | None, url: str, key: str, json_wanted: bool) -> None:
    """Show saved conversations, of MODEL or of all, the latest first."""
    answer = Client(url, key).json("GET", _path(model))
    if json_wanted:
        click.echo(json.dumps(answer, indent=2))
        return
    from llmsnap.cli.tables import print_table

    print_table(_COLUMNS, [_row(entry) for entry in answer["sessions"]])
    count = len(answer["sessions"])
    click.echo(f"{count} conversation{'' if count == 1 else 's'}, {rough_size(answer['bytes'])}")
    for name, reason in answer["refusals"].items():
        click.echo(f"{name}: nothing is saved: {reason}")
    if answer["fault"]:
        click.echo(f"nothing is saved: {answer['fault']}")


@sessions.command()
@click.argument("start", metavar="ID")
@talks_to_proxy
def rm(start: str, url: str, key: str) -> None:
    """Delete the conversation whose id begins with ID."""
    Client(url, key).json("DELETE", f"/api/sessions/{quote(start, safe='')}")
    click.echo("deleted")


@sessions.command()
@click.argument("model", required=False)
@talks_to_proxy
def wipe(model: str | None, url: str, key: str) -> None:
    """Delete all saved conversations, or those of MODEL."""
    answer = Client(url, key).json("DELETE", _path(model))
    click.echo(f"{answer['deleted']} deleted")


@sessions.command()
@click.argument("model")
@talks_to_proxy
@as_json
def test(model: str, url: str, key: str, json_wanted: bool) -> None:
    """Find out whether conversations of MODEL can come back.

    This loads it; it must be idle.
    """
    answer = Client(url, key).json("POST", f"/api/sessions/test/{quote(model)}")
    if json_wanted:
        click.echo(json.dumps(answer, indent=2))
    else:
        click.echo(f"{answer['verdict']}: {answer['reason']} ({answer['seconds']:.1f} s)")


def _path(model: str | None) -> str:
    return f"/api/sessions?model={quote(model, safe='')}" if model else "/api/sessions"


def _row(entry: dict[str, Any]) -> list[str]:
    return [
        entry["id"],
        entry["model"],
        str(entry["tokens"]),
        str(entry["messages"]),
        rough_size(entry["bytes"]),
        f"{datetime.fromisoformat(entry['used']).astimezone():%Y-%m-%d %H:%M:%S}",
    ]
