"""`llmsnap check`: what a configuration means, or what is wrong with it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import click

from llmsnap.cli.client import as_json
from llmsnap.cli.estimates import Estimates, document, estimates_of, in_words
from llmsnap.cli.places import find_configs, reads_configs
from llmsnap.config.engine import sessions_folder, with_save_paths
from llmsnap.config.loader import Loaded, load
from llmsnap.config.resolved import resolved, rows, sentences
from llmsnap.runtime.runfile import state_folder


@click.command()
@reads_configs
@as_json
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file instead.")
def check(config: Path | None, config_dir: Path | None, json_wanted: bool, schema: bool) -> None:
    """Show what a configuration means, or what is wrong with it.

    The models are shown after macros and defaults, with the memory that each will need. Warnings
    and errors go to standard error; the exit code is 78 when the file can't be used.
    """
    if schema:
        from llmsnap.config.jsonschema import schema_text

        click.echo(schema_text(), nl=False)
        return
    loaded = load(*find_configs(config, config_dir))
    folder = sessions_folder(loaded.config, state_folder(os.environ))
    loaded = dataclasses.replace(loaded, config=with_save_paths(loaded.config, folder))
    estimates = estimates_of(loaded.config, os.environ)
    loaded = dataclasses.replace(
        loaded,
        warnings=(*loaded.warnings, *(f"{loaded.name}: {fault}" for fault in estimates.faults)),
    )
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    if json_wanted:
        click.echo(json.dumps(_document(loaded, estimates), indent=2, default=str))
    else:
        _print_table(loaded, estimates)


def _document(loaded: Loaded, estimates: Estimates) -> dict[str, Any]:
    found = resolved(loaded)
    for id_, model in found["models"].items():
        estimate = estimates.found.get(id_)
        model["estimate"] = estimate and document(estimate)
    found["advice"] = list(estimates.advice)
    return found


def _print_table(loaded: Loaded, estimates: Estimates) -> None:
    from llmsnap.cli.tables import print_table

    found = []
    for id_, row in zip(loaded.config.models, rows(loaded), strict=True):
        if not row.memory and id_ in estimates.found:
            row = dataclasses.replace(row, memory=in_words(estimates.found[id_]))
        found.append(dataclasses.astuple(row))
    columns = ["model", "aliases", "group", "memory", "ttl", "proxy"]
    print_table(columns, [row[:-1] for row in found])
    click.echo()
    for model, *_, command in found:
        click.echo(f"{model} runs: {command}")
    click.echo()
    for sentence in sentences(loaded):
        click.echo(sentence)
    for sentence in loaded.differences:
        click.echo(f"not as in llama-swap: {sentence}")
    for sentence in estimates.advice:
        click.echo(f"advice: {sentence}")
    click.echo(f"{loaded.name} is fine: {len(found)} model{'' if len(found) == 1 else 's'}")
