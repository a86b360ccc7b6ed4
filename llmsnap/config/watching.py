"""Whether configuration files are still the ones that were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from llmsnap.errors import ConfigError

Files = Callable[[], Sequence[Path]]
"""Returns the files to read, which may be others each time; may raise ConfigError."""


class Mark(NamedTuple):
    """What tells one state of a file from another.

    Looking is better than being told: the kernel tells nothing of files that are mounted into a
    container, nor of a link further up that leads elsewhere now, as Kubernetes swaps them.
    """

    path: str
    real_path: str
    device: int
    inode: int
    size: int
    changed_ns: int


Marks = tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the configuration is from."""

    files: Files
    watched: bool = False
    """Whether it is read again as soon as it has changed."""
    first: Marks | None = None
    """What was there before it was read for the first time."""

    @classmethod
    def at(cls, files: Files, *, watched: bool) -> Self:
        """Return the source, to be made before the files are read."""
        return cls(files=files, watched=watched, first=marks_of(files))


def marks_of(files: Files) -> Marks | None:
    """Return the marks of `files`; None while one of them isn't there, or there are none."""
    try:
        return tuple(map(_mark, files()))
    except (OSError, ConfigError):
        return None


def _mark(path: Path) -> Mark:
    real = path.resolve(strict=True)
    found = real.stat()
    return Mark(
        path=str(path),
        real_path=str(real),
        device=found.st_dev,
        inode=found.st_ino,
        size=found.st_size,
        changed_ns=found.st_mtime_ns,
    )
