"""`llmsnap load` and `llmsnap unload`: orders to a running proxy."""

from __future__ import annotations

import json
from typing import Any

import click

from llmsnap.cli.client import Client, as_json, model_path, talks_to_proxy


@click.command()
@click.argument("model")
@talks_to_proxy
@as_json
def load(model: str, url: str, key: str, json_wanted: bool) -> None:
    """Load MODEL and wait until it is ready."""
    answer = Client(url, key).json("POST", model_path("/api/models/load", model))
    click.echo(json.dumps(answer, indent=2) if json_wanted else _loaded(answer))


def _loaded(answer: dict[str, Any]) -> str:
    phases = {name.removesuffix("_s"): value for name, value in answer["phases"].items()}
    total = phases.pop("total")
    if total < 0.001:
        return f"{answer['model']} is {answer['state']} (pid {answer['pid']})"
    parts = ", ".join(f"{name} {value:.2f} s" for name, value in phases.items() if value >= 0.01)
    return (
        f"{answer['model']} is {answer['state']} (pid {answer['pid']}) "
        f"after {total:.2f} s{f': {parts}' if parts else ''}"
    )


@click.command()
@click.argument("model", required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long running answers may go on; 0 cuts them. Default: the model's unloadTimeout.",
)
@talks_to_proxy
@as_json
def unload(model: str | None, timeout: float | None, url: str, key: str, json_wanted: bool) -> None:
    """Unload MODEL, or all models, and wait until the processes are gone."""
    path = model_path("/api/models/unload", model) if model else "/api/models/unload"
    query = "" if timeout is None else f"?timeout={timeout:g}"
    Client(url, key).text("POST", path + query)
    what = {"unloaded": model or "all"}
    click.echo(json.dumps(what) if json_wanted else f"{model or 'every model'} is unloaded")
