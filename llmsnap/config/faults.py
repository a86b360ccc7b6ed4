"""What is wrong with a configuration, and where: the loader makes its errors and warnings of it."""

from __future__ import annotations

from collections.abc import Iterable


class Fault(Exception):
    """The configuration can't be used; `path` is the key, such as `models.qwen.ttl`."""

    def __init__(self, message: str, *, line: int, path: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.path = path


def located(name: str, line: int, path: str, message: str) -> str:
    """Return `message` after the file, the line and the key path that it speaks of."""
    return ": ".join(part for part in (f"{name}:{line}", path, message) if part)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that `word` was most likely meant to be."""
    from difflib import get_close_matches  # only ever wanted for a mistake

    candidates = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(word.lower(), candidates, n=1, cutoff=0.6)
    return candidates[found[0]] if found else None


def one_of(known: Iterable[str]) -> str:
    """Return `known` as a phrase for people: `a, b or c`."""
    *first, last = known
    return f"{', '.join(first)} or {last}" if first else last
