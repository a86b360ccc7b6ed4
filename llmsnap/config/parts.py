"""Models in several files, as llama.cpp splits and names them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_PART: Final = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")
_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Split:
    """A model in several files, there or not."""

    stem: str
    """What their paths begin with, before the numbers."""
    paths: tuple[str, ...]
    """All of them, in order."""


def split_of(path: str) -> Split | None:
    """Return the model that `path` is a part of; None: it is a file by itself."""
    match = _PART.fullmatch(path)
    if match is None or not 0 < int(match["count"]) <= _MOST:
        return None
    stem, count = match["stem"], match["count"]
    numbers = range(1, int(count) + 1)
    return Split(stem, tuple(f"{stem}-{number:05}-of-{count}.gguf" for number in numbers))


def parts_of(path: str) -> tuple[str, ...]:
    """Return the paths of all parts of the model that `path` is one of, there or not; else it."""
    split = split_of(path)
    return (path,) if split is None else split.paths
