"""A configuration as text, made of models that were found elsewhere.

It is the same text that `llmsnap import` writes for people and `llmsnap serve --models-dir` reads.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SERVER: Final = "LLAMA_SERVER"
"""The environment variable that names another command than `llama-server`."""

_PLAIN: Final = re.compile(r"[A-Za-z][\w./-]*")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model, and how its llama-server is to be started."""

    name: str
    options: tuple[tuple[str, ...], ...]
    """Each option with its value, if it takes one: `("--ctx-size", "4096")`."""
    notes: tuple[str, ...] = ()
    """What people should know of it."""
    aliases: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """`NAME=value` entries."""
    ttl_s: int = 0
    unload_timeout_s: int = 0
    preloaded: bool = False


def config_text(
    models: Iterable[FoundModel],
    heading: Sequence[str] = (),
    *,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Return a configuration of `models`, with `heading` as its first comment."""
    models = sorted(models, key=lambda model: model.name)
    lines = [*_comments(heading), f"models:{'' if models else ' {}'}"]
    for model in models:
        lines += ["", *_model_lines(model, environ.get(SERVER) or "llama-server")]
    if preloaded := [model.name for model in models if model.preloaded]:
        lines += ["", "hooks:", "  on_startup:", f"    preload: {_list(preloaded)}"]
    return "\n".join(lines) + "\n"


def _model_lines(model: FoundModel, server: str) -> list[str]:
    lines = _comments(model.notes, indent="  ")
    lines += [f"  {_scalar(model.name)}:", "    cmd: |"]
    options = (("--host", "127.0.0.1"), ("--port", "${PORT}"), *model.options)
    lines += [f"      {server}", *(f"      {_option(option)}" for option in options)]
    for key, values in (("aliases", model.aliases), ("env", model.env)):
        if values:
            lines.append(f"    {key}: {_list(values)}")
    if model.ttl_s:
        lines.append(f"    ttl: {model.ttl_s}")
    if model.unload_timeout_s:
        lines.append(f"    unloadTimeout: {model.unload_timeout_s}")
    return lines


def _option(option: tuple[str, ...]) -> str:
    return " ".join(word if word == "${PORT}" else shlex.quote(word) for word in option)


def _comments(lines: Iterable[str], indent: str = "") -> list[str]:
    return [f"{indent}# {part}" for line in lines for part in line.splitlines()]


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(_scalar(value) for value in values)}]"


def _scalar(text: str) -> str:
    """Return `text` for YAML; in JSON's quotes where it could be taken for something else."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
