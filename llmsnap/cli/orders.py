"""`llmsnap load`, `wake`, `sleep` and `unload`: orders to a running proxy."""

from __future__ import annotations

import json
from typing import Any

import click

from llmsnap.cli.client import as_json, talks_to_proxy
from llmsnap.client.proxy import Client, model_path


@click.command()
@click.argument("model")
@talks_to_proxy
@as_json
def load(model: str, url: str, key: str, json_wanted: bool) -> None:
    """Load MODEL and wait until it is ready."""
    answer = Client(url, key).json("POST", model_path("/api/models/load", model))
    click.echo(json.dumps(answer, indent=2) if json_wanted else _loaded(answer))


@click.command()
@click.argument("model")
@talks_to_proxy
@as_json
def wake(model: str, url: str, key: str, json_wanted: bool) -> None:
    """Wake MODEL and wait until it is ready.

    One that isn't asleep is left alone.
    """
    answer = Client(url, key).json("POST", model_path("/api/models/wake", model))
    click.echo(json.dumps(answer, indent=2) if json_wanted else _moved(answer))


@click.command()
@click.argument("model")
@talks_to_proxy
@as_json
def sleep(model: str, url: str, key: str, json_wanted: bool) -> None:
    """Put MODEL to sleep and wait until it is.

    One that is busy or can't sleep is left alone.
    """
    answer = Client(url, key).json("POST", model_path("/api/models/sleep", model))
    click.echo(json.dumps(answer, indent=2) if json_wanted else _moved(answer))


def _loaded(answer: dict[str, Any]) -> str:
    return f"{answer['model']} is {answer['state']} (pid {answer['pid']}){_waited(answer)}"


def _moved(answer: dict[str, Any]) -> str:
    driver = f" ({answer['driver']})" if answer.get("driver") else ""
    return f"{answer['model']} is {answer['state']}{driver}{_waited(answer)}"


def _waited(answer: dict[str, Any]) -> str:
    """Return what the wait was made of; nothing when there was none worth the name."""
    phases = {name.removesuffix("_s"): spent for name, spent in answer["phases"].items()}
    total = phases.pop("total", sum(phases.values()))
    if total < 0.001:
        return ""
    parts = ", ".join(f"{name} {spent:.2f} s" for name, spent in phases.items() if spent >= 0.01)
    return f" after {total:.2f} s{f': {parts}' if parts else ''}"


@click.command()
@talks_to_proxy
@as_json
def reload(url: str, key: str, json_wanted: bool) -> None:
    """Have the proxy read its configuration again.

    Only what has changed is touched.
    """
    answer = Client(url, key).json("POST", "/api/config/reload")
    click.echo(json.dumps(answer, indent=2) if json_wanted else _reloaded(answer))


def _reloaded(answer: dict[str, Any]) -> str:
    """Return what has changed, a line a kind."""
    kinds = {
        "added": "added",
        "removed": "removed",
        "restarted": "to be restarted",
        "adopted": "with new settings",
        "settings": "changed at the top",
        "waiting": "only after a restart of llmsnap",
    }
    lines = [f"{words}: {', '.join(answer[kind])}" for kind, words in kinds.items() if answer[kind]]
    return "\n".join(lines) or "nothing has changed"


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
    """Unload MODEL, or all models.

    Waits until the processes are gone.
    """
    path = model_path("/api/models/unload", model) if model else "/api/models/unload"
    query = "" if timeout is None else f"?timeout={timeout:g}"
    Client(url, key).text("POST", path + query)
    what = {"unloaded": model or "all"}
    click.echo(json.dumps(what) if json_wanted else f"{model or 'every model'} is unloaded")


@click.command()
@talks_to_proxy
@as_json
def handover(url: str, key: str, json_wanted: bool) -> None:
    """End the proxy and leave its models to the next one.

    Needs `runtime: {adopt: true}` in its configuration.
    """
    answer = Client(url, key).json("POST", "/api/handover")
    click.echo(json.dumps(answer) if json_wanted else "it hands over: start the next one now")
