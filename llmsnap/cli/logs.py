"""`llmsnap logs`: what a running proxy and its models print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import click

from llmsnap.cli.client import as_json, talks_to_proxy
from llmsnap.client.proxy import Client, model_path


@click.command()
@click.argument("model", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@talks_to_proxy
@as_json
def logs(model: str | None, follow: bool, url: str, key: str, json_wanted: bool) -> None:
    """Show the log of MODEL, or of the proxy.

    MODEL may be `proxy`, or `upstream` for all models together. Without it, the log is what the
    proxy prints to its standard output.
    """
    path = model_path("/logs/stream", model) if model else "/logs/stream"
    chunks = Client(url, key).chunks(path if follow else f"{path}?no-follow")
    # Ctrl-C is how one stops following: no failure.
    with suppress(KeyboardInterrupt):
        if json_wanted:
            _print_records(model or "", chunks)
        else:
            for chunk in chunks:
                click.echo(chunk, nl=False)


def _print_records(log: str, chunks: Iterator[bytes]) -> None:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _print_record(log, line)
    if rest:
        _print_record(log, rest)


def _print_record(log: str, line: bytes) -> None:
    click.echo(json.dumps({"log": log, "line": line.decode(errors="replace")}))
