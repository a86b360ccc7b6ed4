"""Models in several files, as llama.cpp splits and names them."""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")
_MOST: Final = 1000


def parts_of(path: str) -> tuple[str, ...]:
    """Return the paths of all parts of the model that `path` is one of, there or not; else it."""
    match = _PART.fullmatch(path)
    if match is None or not 0 < int(match["count"]) <= _MOST:
        return (path,)
    stem, count = match["stem"], match["count"]
    return tuple(f"{stem}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1))
