"""`llmsnap ps`: the models of a running proxy and how they are."""

from __future__ import annotations

import json
from typing import Any

import click

from llmsnap.cli.client import Client, as_json, talks_to_proxy


@click.command()
@talks_to_proxy
@as_json
def ps(url: str, key: str, json_wanted: bool) -> None:
    """Show the models of a running proxy, their states and clients."""
    answer = Client(url, key).json("GET", "/api/models")
    if json_wanted:
        click.echo(json.dumps(answer, indent=2))
    else:
        _print_table(answer["models"])


def _print_table(models: list[dict[str, Any]]) -> None:
    from llmsnap.cli.tables import print_table

    columns = ["model", "state", "pid", "in flight", "waiting", "idle", "sleeps by", "aliases"]
    print_table(columns, [_row(model) for model in models])


def _row(model: dict[str, Any]) -> list[str]:
    paused = f" ({model['paused']} paused)" if model["paused"] else ""
    notes = [name for name in ("pinned", "unloading") if model[name]]
    idle = model["idle_s"] if model["state"] == "ready" and not model["in_flight"] else None
    return [
        model["id"],
        ", ".join([model["state"] + paused, *notes]),
        str(model["pid"] or ""),
        str(model["in_flight"] or ""),
        str(model["waiting"] or ""),
        "" if idle is None else duration(idle),
        model["driver"] or "",
        ", ".join(model["aliases"]),
    ]


def duration(seconds: float) -> str:
    """Return `seconds` for people: the two largest units at most."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
