"""`llmsnap release` and `llmsnap resume`: all memory for something else, for a while."""

from __future__ import annotations

import json
from typing import Any

import click

from llmsnap.cli.client import as_json, talks_to_proxy
from llmsnap.client.proxy import Client
from llmsnap.config.quantities import parse_duration


def _read_time(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Return the seconds that an option means. Raises BadParameter."""
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option(
    "--for",
    "for_s",
    metavar="TIME",
    callback=_read_time,
    help="Resume by itself after this, such as 10m.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="TIME",
    callback=_read_time,
    help="How long answers may go on that can't be paused; 0 cuts them. Default: to their end.",
)
@click.option("--refuse", is_flag=True, help="Refuse requests meanwhile; else they wait.")
@talks_to_proxy
@as_json
def release(
    for_s: float | None,
    timeout_s: float | None,
    refuse: bool,
    url: str,
    key: str,
    json_wanted: bool,
) -> None:
    """Give all memory back until `llmsnap resume`.

    Waits until it is free. Nothing is loaded meanwhile.
    """
    terms = {"for": for_s, "timeout": timeout_s, "refuse": refuse}
    answer = Client(url, key).json("POST", "/api/release", terms)
    click.echo(json.dumps(answer, indent=2) if json_wanted else _released(answer))


@click.command()
@talks_to_proxy
@as_json
def resume(url: str, key: str, json_wanted: bool) -> None:
    """Let models load again after a release.

    Requests that have waited go first.
    """
    answer = Client(url, key).json("POST", "/api/resume")
    click.echo(json.dumps(answer, indent=2) if json_wanted else "models may load again")


def _released(answer: dict[str, Any]) -> str:
    asleep = [model for model, state in answer["models"].items() if state == "asleep"]
    left_s = (answer["released"] or {}).get("left_s")
    until = "until llmsnap resume" if left_s is None else f"for {left_s:.0f} s"
    sleeping = f"; asleep: {', '.join(asleep)}" if asleep else ""
    return f"all memory is free after {answer['took_s']:.2f} s, {until}{sleeping}"
