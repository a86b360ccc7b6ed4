"""`llmsnap ps`: the models of a running proxy, how they are and where their bytes are."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import click

from llmsnap.cli.client import as_json, talks_to_proxy
from llmsnap.client.proxy import Client
from llmsnap.config.quantities import rough_size, span_text

_COLUMNS: Final = (
    "model",
    "state",
    "memory",
    "in flight",
    "waiting",
    "idle",
    "back in",
    "sleeps by",
    "pid",
    "aliases",
)
_PERIOD_S: Final = 1.0


@click.command()
@talks_to_proxy
@as_json
@click.option("--watch", is_flag=True, help="Show them again every second, until Ctrl-C.")
@click.option("--peers", is_flag=True, help="Show the models of its peers, too.")
def ps(url: str, key: str, json_wanted: bool, watch: bool, peers: bool) -> None:
    """Show the models of a running proxy.

    Each with its state, its clients, and where its bytes are.
    """
    client, path = Client(url, key), "/api/models?peers=1" if peers else "/api/models"
    if json_wanted:
        click.echo(json.dumps(client.json("GET", path), indent=2))
    elif watch:
        with suppress(KeyboardInterrupt):
            _watch(client, path)
    else:
        from llmsnap.cli.tables import print_table

        print_table(_COLUMNS, _rows(client, path))


def _watch(client: Client, path: str) -> None:
    from llmsnap.cli.tables import LiveTable

    with LiveTable(_COLUMNS) as table:
        while True:
            table.show(_rows(client, path))
            time.sleep(_PERIOD_S)


def _rows(client: Client, path: str) -> list[list[str]]:
    answer = client.json("GET", path)
    remote = [
        _peer_row(peer, model) for peer in answer.get("peers", ()) for model in peer["models"]
    ]
    return [_row(model) for model in answer["models"]] + remote


def _peer_row(peer: dict[str, Any], model: dict[str, Any]) -> list[str]:
    """Return the row of a peer's model; of one that isn't llmsnap's only the name is known."""
    name = f"{peer['id']}/{model['id']}"
    if peer["reachable"] and model.get("state") is not None:
        with suppress(KeyError, TypeError):  # another version of llmsnap may say less
            return [name, *_row(model)[1:]]
    state = "not known" if peer["reachable"] else "can't be reached"
    return [name, state, *[""] * (len(_COLUMNS) - 2)]


def _row(model: dict[str, Any]) -> list[str]:
    paused = f" ({model['paused']} paused)" if model["paused"] else ""
    notes = [name for name in ("pinned", "unloading") if model[name]]
    is_up = model["state"] == "ready"
    idle = model["idle_s"] if is_up and not model["in_flight"] else None
    return [
        model["id"],
        ", ".join([model["state"] + paused, *notes]),
        _places(model.get("bytes", {})),
        str(model["in_flight"] or ""),
        str(model["waiting"] or ""),
        "" if idle is None else span_text(idle),
        "" if is_up else f"{model['back_s']:.1f}s",
        model["driver"] or ("stops" if model["sleep_refusals"] else ""),
        str(model["pid"] or ""),
        ", ".join(model["aliases"]),
    ]


def _places(held: Mapping[str, int]) -> str:
    """Return where a model's bytes are: GPUs first, then RAM and swap."""
    last = ("host", "swap")
    order = sorted(held, key=lambda device: (device in last, device))
    return ", ".join(f"{device} {rough_size(held[device])}" for device in order)
