"""`llmsnap import`: a configuration made of models that are there already."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from llmsnap.config.loader import loads
from llmsnap.config.ollama_store import is_store, store_text
from llmsnap.config.sources import text_of
from llmsnap.errors import ConfigError

_STORES: Final = (Path.home() / ".ollama/models", Path("/usr/share/ollama/.ollama/models"))


@click.command(name="import")
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file."
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def import_(source: Path | None, output: Path | None, force: bool) -> None:
    """Write a configuration of the models in SOURCE.

    SOURCE is a folder of GGUF files, a preset of llama-server (.ini), or Ollama's store; without
    it, Ollama's store is looked for. Nothing is moved or copied.
    """
    text = _text_of(source or _ollamas())
    loaded = loads(text, name=str(output or "config.yaml"))
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{output} is there already; name another file or give --force") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{output}: can't be written: {reason}; name another file") from None
    count = len(loaded.config.models)
    click.echo(f"{count} model{'' if count == 1 else 's'} in {output}", err=True)


def _text_of(source: Path) -> str:
    if is_store(source):
        return store_text(source)
    if source.is_dir() or source.suffix == ".ini":
        return text_of(source)
    raise ConfigError(
        f"{source} is neither a folder of GGUF files, nor a .ini preset, nor Ollama's store"
    )


def _ollamas() -> Path:
    given = os.environ.get("OLLAMA_MODELS")
    for store in (Path(given),) if given else _STORES:
        if is_store(store):
            return store
    raise ConfigError("no store of Ollama's is in its usual place; name a SOURCE to import")
