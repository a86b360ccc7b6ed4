"""Which of the files that a llama-server's command names aren't there."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import Final

from llmsnap.config.argv import llama_words
from llmsnap.config.parts import parts_of
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
    if not _DOWNLOADS.isdisjoint(llama_words(argv)) or any(name in env for name in _DOWNLOADED):
        return []
    files = (part for file in read_flags(argv, env).files for part in parts_of(file))
    return [file for file in dict.fromkeys(files) if _is_missing(file)]


def _is_missing(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):  # it may be there for others
        return False
