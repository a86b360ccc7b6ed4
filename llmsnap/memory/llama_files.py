"""Which of the files that a llama-server's command names aren't there, or not to their end."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from llmsnap.config.argv import llama_words
from llmsnap.config.parts import parts_of
from llmsnap.errors import ModelFileCutOff, ModelFileError
from llmsnap.memory.gguf_header import read_header
from llmsnap.memory.llama_flags import read_flags

_DOWNLOADS: Final = frozenset({
    "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-dr", "--docker-repo",
    "-mmu", "--mmproj-url", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf",
})  # fmt: skip
"""Options of a llama-server that may fetch its files itself."""
_DOWNLOADED: Final = tuple(
    f"LLAMA_ARG_{name}"
    for name in ("MODEL_URL", "HF_REPO", "HF_FILE", "DOCKER_REPO", "MMPROJ_URL", "HFD_REPO")
)
"""The same as variables."""


def missing_files(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the files that a llama-server with this command lacks, in the order of their names.

    None where it may fetch them itself. What can't be known counts as there. Reads the disk.
    """
    return [file for file in _files(argv, env) if _is_missing(file)]


def cut_off(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return which file of a llama-server with this command ends too early, and where; else "".

    llama.cpp refuses it, once it has read so far. Reads headers, 50 ms for a large vocabulary, and
    again only when a file has changed.
    """
    return next(filter(None, map(_where_cut, _files(argv, env))), "")


def _files(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return what has to be there already, each once."""
    if not _DOWNLOADS.isdisjoint(llama_words(argv)) or any(name in env for name in _DOWNLOADED):
        return []
    return list(dict.fromkeys(p for file in read_flags(argv, env).files for p in parts_of(file)))


def _where_cut(path: str) -> str:
    try:
        there = os.stat(path)
        return _where_cut_as_of(path, there.st_size, there.st_mtime_ns)
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=256)
def _where_cut_as_of(path: str, _size: int, _changed_at_ns: int) -> str:
    try:
        read_header(Path(path))
    except ModelFileCutOff as error:
        return str(error)
    except ModelFileError:  # a newer kind of file, perhaps
        pass
    return ""


def _is_missing(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):  # it may be there for others
        return False
