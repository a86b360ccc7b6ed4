"""`llmsnap check`: what a configuration means, or what is wrong with it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from llmsnap.cli.client import as_json
from llmsnap.cli.places import find_configs
from llmsnap.config.loader import Loaded, load
from llmsnap.config.resolved import resolved, rows


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The configuration. Default: ./config.yaml.",
)
@click.option(
    "--config-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder of further .yaml files, read as one.",
)
@as_json
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file instead.")
def check(config: Path | None, config_dir: Path | None, json_wanted: bool, schema: bool) -> None:
    """Show what a configuration means after macros and defaults.

    Warnings and errors go to standard error; the exit code is 78 when the file can't be used.
    """
    if schema:
        from llmsnap.config.jsonschema import schema_text

        click.echo(schema_text(), nl=False)
        return
    loaded = load(*find_configs(config, config_dir))
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    if json_wanted:
        click.echo(json.dumps(resolved(loaded), indent=2, default=str))
    else:
        _print_table(loaded)


def _print_table(loaded: Loaded) -> None:
    from llmsnap.cli.tables import print_table

    found = [dataclasses.astuple(row) for row in rows(loaded)]
    columns = ["model", "aliases", "group", "memory", "ttl", "proxy", "command"]
    print_table(columns, found)
    click.echo(f"\n{loaded.name} is fine: {len(found)} model{'' if len(found) == 1 else 's'}")
