"""Which commands run a llama-server, and where it is to save its slots."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from pathlib import Path, PurePath
from typing import Final

from msgspec import structs

from llmsnap.config.argv import split_command
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import SessionsConfig

SAVE_PATH: Final = "--slot-save-path"
"""llama-server's option; without it there is nothing to save and nothing to restore."""
_PROGRAM: Final = "llama-server"
_WRAPPERS: Final = frozenset({"docker", "podman", "ssh", "sh", "bash", "dash", "zsh"})
"""What is behind these may have files of its own, or reads its words in a way of its own."""
_TEXTLESS: Final = frozenset({"--embedding", "--embeddings", "--rerank", "--reranking"})
"""Options of servers that hold no conversations."""


def is_llama_server(model: ModelConfig) -> bool:
    """Whether the model says so, or one of the words before the first option is its program."""
    if model.engine != "auto":
        return model.engine == _PROGRAM
    return bool(server_word(split_command(model.cmd)))


def server_word(words: Sequence[str]) -> str:
    """Return the word of a command that is llama-server itself; empty: there is none.

    It stands before the first option, behind at most a wrapper that leaves its words as they are.
    """
    before = list(takewhile(lambda word: not word.startswith("-"), words))
    names = [PurePath(word).name for word in before]
    if _WRAPPERS.isdisjoint(names):
        for word, name in zip(before, names, strict=True):
            if name.startswith(_PROGRAM):
                return word
    return ""


def sessions_folder(config: Config, state: Path) -> Path:
    """Return where conversations are saved."""
    return Path(config.sessions.dir or state / "sessions").absolute()


def keeps_sessions(model: ModelConfig, sessions: SessionsConfig) -> bool:
    """Whether the model's conversations are to be saved, if its command lets them."""
    words = split_command(model.cmd)
    wanted = sessions.mode if model.sessions is None else model.sessions
    return wanted == "auto" and is_llama_server(model) and not _TEXTLESS & {*words}


def saves_into(argv: Sequence[str], folder: Path) -> bool:
    """Whether a command makes its server save into `folder`."""
    paths = [PurePath(path) for path in _save_paths(argv)]
    return bool(paths) and paths[-1] == folder


def with_save_paths(config: Config, folder: Path) -> Config:
    """Return `config` with the option added to the commands of servers that are to save slots.

    A command that has the option stays as it is, and so does one that runs the server inside
    something else, which only `engine` can know of: there the option has to be written by hand.
    """
    models: Mapping[str, ModelConfig] = {
        id_: _with_save_path(model, folder) if keeps_sessions(model, config.sessions) else model
        for id_, model in config.models.items()
    }
    return structs.replace(config, models=models)


def _with_save_path(model: ModelConfig, folder: Path) -> ModelConfig:
    words = split_command(model.cmd)
    if not server_word(words) or any(True for _ in _save_paths(words)):
        return model
    option = f"{SAVE_PATH} {shlex.quote(f'{folder}/')}"
    return structs.replace(model, cmd=f"{model.cmd.rstrip().removesuffix(chr(92))} {option}")


def _save_paths(words: Sequence[str]) -> Iterator[str]:
    """Yield the values of the option, also within a word that is a command itself."""
    for word, following in pairwise([*words, ""]):
        option, equals, value = word.partition("=")
        if option == SAVE_PATH:
            yield value if equals else following
        elif (inner := split_command(word)) != [word]:
            yield from _save_paths(inner)
