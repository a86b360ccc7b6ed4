"""The database's files: for our eyes only, claimed by one proxy, set aside when they are broken."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

_SIDE: Final = ("-wal", "-shm")
"""What SQLite keeps beside the file; it takes over the file's permissions."""


class Claim:
    """A lock on a database for as long as a proxy uses it; `held` is False where another has it.

    It lies on a file of its own: closing a database file would end SQLite's own locks on it.
    """

    def __init__(self, descriptor: int, *, held: bool) -> None:
        self._descriptor = descriptor
        self.held = held

    @classmethod
    def on(cls, path: Path) -> Self:
        """Claim the database at `path`. Raises OSError."""
        lock = path.with_name(f"{path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return cls(descriptor, held=False)
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor, held=True)

    def close(self) -> None:
        """Give it up; nothing more happens when called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def make_private(path: Path) -> None:
    """Have a file at `path` that only its owner may read; it may be there. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for file in (path, *_beside(path)):
        with suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def set_aside(path: Path) -> Path:
    """Rename the broken file at `path` and those beside it; return its new name. Raises OSError."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    path.rename(aside)
    for file in _beside(path):
        with suppress(FileNotFoundError):
            file.rename(file.with_name(file.name.replace(path.name, aside.name, 1)))
    return aside


def inode(path: Path) -> int | None:
    """Return what tells the file at `path` from one that takes its place; None: it isn't there."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + end) for end in _SIDE]
