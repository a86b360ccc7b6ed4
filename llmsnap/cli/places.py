"""Where files are: the options that say it, and where the configuration is when none does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from llmsnap.config.sources import files_of
from llmsnap.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])

FILE: Final = click.Path(path_type=Path, dir_okay=False)
FOLDER: Final = click.Path(path_type=Path, file_okay=False)


def reads_config(command: Command) -> Command:
    """Give a command the option `--config`; it gets it as `config`."""
    text = "The configuration. Default: ./config.yaml, else ~/.config/llmsnap/config.yaml."
    return click.option("--config", type=FILE, help=text)(command)


def reads_configs(command: Command) -> Command:
    """Give a command `--config` and `--config-dir`; it gets them as `config` and `config_dir`."""
    text = "A folder of further .yaml files, read with it as one."
    return reads_config(click.option("--config-dir", type=FOLDER, help=text)(command))


def keeps_state(command: Command) -> Command:
    """Give a command the option `--state-dir`; it gets it as `state_dir`."""
    text = "Where llmsnap keeps its database and conversations. Default: ~/.local/state/llmsnap."
    return click.option("--state-dir", type=FOLDER, help=text)(command)


def find_configs(config: Path | None, folder: Path | None, *models: Path | None) -> list[Path]:
    """Return what to read; when nothing is given, what `find_config` finds. Raises ConfigError.

    `models`: a folder of models, a preset.
    """
    given = [path for path in models if path is not None]
    if folder:
        return [*files_of(config, folder), *given]
    return [config, *given] if config and given else given or [find_config(config)]


def find_config(given: Path | None) -> Path:
    """Return the configuration to read. Raises ConfigError when none is given and none is there."""
    if given is not None:
        return given
    usual = [Path("config.yaml"), _xdg("XDG_CONFIG_HOME", ".config") / "config.yaml"]
    for path in usual:
        if path.is_file():
            return path
    raise ConfigError(
        f"no configuration: neither ./{usual[0]} nor {usual[1]} is there. To begin:\n"
        "  llmsnap demo               try it with two small models that come with it\n"
        "  llmsnap --models-dir DIR   serve a folder of GGUF files\n"
        "  llmsnap --config FILE      use a file of yours, or of llama-swap's\n"
        "  write a config.yaml like   models: {qwen: {cmd: llama-server --port ${PORT} -m q.gguf}}"
    )


def _xdg(variable: str, fallback: str) -> Path:
    """Return our folder below the one that `variable` names; relative values don't count."""
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / fallback) / "llmsnap"
