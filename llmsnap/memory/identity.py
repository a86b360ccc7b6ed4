"""What a learned footprint holds for: a command, the files it names, its program's build."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import json

from llmsnap.config.parts import parts_of

_WEIGHTS: Final = frozenset(
    {".gguf", ".ggml", ".bin", ".safetensors", ".pt", ".pth", ".onnx", ".llamafile"}
)
"""Other files, such as logs, change without any effect on memory."""
_TELLING: Final = re.compile(r"LLAMA_|GGML_|(CUDA|HIP|ROCR|GPU|ZE|NVIDIA)_\w*(VISIBLE|DEVICE)")
"""Variables that change what llama-server takes, or where."""

_Stamp = tuple[str, int, int]
"""A file's path, its size and when it was changed, in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How a model's server is started."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """The whole environment."""
    own: Mapping[str, str]
    """What the configuration adds to it for this model."""
    port: int
    """Which it is to listen on: it may be another next time, and means nothing."""


def identity_of(command: Command) -> str:
    """Return what is another when the memory that `command` takes may be another. Reads the disk.

    `llama-server`'s own `build_info` is of no use: builds of the same source differ.
    """
    told = telling(command.env)
    facts = (
        [_without_port(word, command.port) for word in command.argv],
        sorted((told | dict(command.own)).items()),
        sorted({stamp for word in _words(command) for stamp in _files(word)}),
        _program(command),
    )
    return hashlib.sha256(json.encode(facts)).hexdigest()


def telling(env: Mapping[str, str]) -> dict[str, str]:
    """Return what of `env` changes what llama-server takes, or where."""
    return {name: value for name, value in env.items() if _TELLING.match(name)}


def _without_port(word: str, port: int) -> str:
    return re.sub(rf"(^|[=:]){port}$", r"\1${PORT}", word)


def _words(command: Command) -> Iterator[str]:
    """Yield whatever may be the path of a file."""
    for word in (*command.argv[1:], *command.own.values()):
        yield from dict.fromkeys((word, *word.split(","), word.partition("=")[2]))


def _files(word: str) -> Iterator[_Stamp]:
    """Yield the weights that `word` names, all parts of them."""
    if Path(word).suffix.lower() in _WEIGHTS:
        for path in parts_of(word):
            if (stamp := _stamp(path)) is not None:
                yield stamp


def _program(command: Command) -> _Stamp | None:
    found = shutil.which(command.argv[0], path=command.env.get("PATH")) if command.argv else None
    return _stamp(os.path.realpath(found)) if found else None


def _stamp(path: str) -> _Stamp | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return (path, status.st_size, status.st_mtime_ns)
