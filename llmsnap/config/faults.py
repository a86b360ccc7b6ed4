"""What is wrong with a configuration, and where: the loader makes its errors and warnings of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

_LONGEST_PATH: Final = 200


class Line(int):
    """A line of one of several files."""

    file: str

    def __new__(cls, number: int, file: str) -> Self:
        """Return line `number` of `file`."""
        line = super().__new__(cls, number)
        line.file = file
        return line


class Fault(Exception):
    """The configuration can't be used; `path` is the key, such as `models.qwen.ttl`."""

    def __init__(self, message: str, *, line: int, path: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.path = path


def located(name: str, line: int, path: str, message: str) -> str:
    """Return `message` after the file, the line and the key path that it speaks of.

    `name` is the file's, unless the line knows better.
    """
    name = line.file if isinstance(line, Line) else name
    return ": ".join(part for part in (f"{name}:{line}", _on_one_line(path), message) if part)


def _on_one_line(path: str) -> str:
    """Return `path` fit for a log: keys may be of any length, and hold any character."""
    shown = path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + "…"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in shown)


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
