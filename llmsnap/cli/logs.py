"""`llmsnap logs`: what a running proxy and its models print."""

from __future__ import annotations

import json

import click

from llmsnap.cli.client import Client, as_json, model_path, talks_to_proxy


@click.command()
@click.argument("model", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@talks_to_proxy
@as_json
def logs(model: str | None, follow: bool, url: str, key: str, json_wanted: bool) -> None:
    """Show the log of MODEL, of `proxy` or `upstream`, or what goes to standard output."""
    path = model_path("/logs/stream", model) if model else "/logs/stream"
    rest = b""
    for chunk in Client(url, key).chunks(path if follow else f"{path}?no-follow"):
        if not json_wanted:
            click.echo(chunk, nl=False)
            continue
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _print_record(model, line)
    if rest:
        _print_record(model, rest)


def _print_record(model: str | None, line: bytes) -> None:
    click.echo(json.dumps({"log": model or "", "line": line.decode(errors="replace")}))
