"""The files: for their owner alone, whole or not there at all, and checked before they are used."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmsnap.errors import LlmsnapError

KEPT: Final = ".kv"
_UNFINISHED: Final = ".part"
_BROKEN: Final = ".bad"
_LEAST_BYTES: Final = 64
"""A slot that holds nothing makes a file of 28 to 40 bytes."""
_TRIAL_BYTES: Final = 2**20
_WHOLE_BYTES: Final = 64 * 2**20
"""So much of a file is read for its checksum, in samples over all of it."""
_SAMPLE_BYTES: Final = 2**20


class FileFault(LlmsnapError):
    """A file, or the directory for it, isn't as it should be."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that was checked and has its final name."""

    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Room:
    """How much the disk has, in bytes."""

    total: int
    free: int


def prepare(folder: Path) -> None:
    """Have `folder` there, for us alone, and able to take a file. Raises FileFault."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise FileFault(f"{folder} is no directory; set sessions.dir to one")
        if found.st_uid != os.geteuid():
            raise FileFault(f"{folder} belongs to somebody else; set sessions.dir to one of yours")
        if found.st_mode & 0o077:
            folder.chmod(0o700)
        trial = folder / temporary_name()
        os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        trial.unlink()
    except OSError as error:
        said = error.strerror or str(error)
        raise FileFault(f"{folder} can't be used: {said.lower()}; set sessions.dir?") from error


def ailment(folder: Path) -> str:
    """Return why `folder` takes no files now; empty: it takes small ones at least."""
    trial = folder / temporary_name()
    try:
        with trial.open("xb") as file:
            file.write(bytes(_TRIAL_BYTES))
    except OSError as error:
        return f"{folder} takes no files: {(error.strerror or str(error)).lower()}"
    finally:
        with suppress(OSError):
            trial.unlink()
    return ""


def temporary_name() -> str:
    """Return a name that nobody can guess, for what isn't whole yet."""
    return f"{secrets.token_hex(16)}{_UNFINISHED}"


def promote(folder: Path, temporary: str, name: str, written: int) -> Kept:
    """Check what a server has written, have it on the disk, and give it its `name`.

    `written` is how many bytes the server says it is. Raises FileFault.
    """
    try:
        with _opened(folder / temporary) as descriptor:
            size = os.fstat(descriptor).st_size
            if size < _LEAST_BYTES or size != written:
                raise FileFault(f"{size} bytes are there of the {written} that it told")
            os.fchmod(descriptor, 0o600)
            os.fsync(descriptor)
            checksum = _checksum(descriptor, size)
        (folder / temporary).rename(folder / name)
        _sync(folder)
    except OSError as error:
        raise FileFault(f"it can't be kept: {error.strerror or error}") from error
    return Kept(size, checksum)


def fault_of(folder: Path, name: str, kept: Kept) -> str:
    """Return what is wrong with the file `name`; empty: it is as it was when it was kept."""
    try:
        with _opened(folder / name) as descriptor:
            size = os.fstat(descriptor).st_size
            if size != kept.size:
                return f"it has {size} bytes, not {kept.size}"
            if _checksum(descriptor, size) != kept.checksum:
                return "its content is another"
    except FileFault as fault:
        return str(fault)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def set_aside(folder: Path, name: str) -> None:
    """Take a file out of use; it stays for a day, for whoever wants to know."""
    path = folder / name
    with suppress(OSError):
        if path.is_symlink():
            path.unlink()
        else:
            path.rename(path.with_suffix(_BROKEN))


def remove(folder: Path, name: str) -> None:
    """Delete a file that may be there."""
    with suppress(OSError):
        (folder / name).unlink()


def sizes(folder: Path) -> dict[str, int]:
    """Return the bytes on disk of what is ours in `folder`, by name; links count as nothing."""
    found = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _is_ours(entry.name):
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.name] = max(status.st_size, status.st_blocks * 512)
    return found


def sweep(folder: Path, known: Collection[str], *, older_than: float, broken_before: float) -> int:
    """Delete what nobody knows and was last changed before `older_than`; return how many.

    Files set aside go when they are from before `broken_before`. Both are Unix seconds.
    """
    swept = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _is_ours(entry.name) or entry.name in known:
                continue
            limit = broken_before if entry.name.endswith(_BROKEN) else older_than
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < limit:
                    (folder / entry.name).unlink()
                    swept += 1
    return swept


def room(folder: Path) -> Room:
    """Return how much there is on the disk of `folder`. Raises FileFault."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise FileFault(f"{folder} can't be used: {error.strerror or error}") from error
    return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def _is_ours(name: str) -> bool:
    stem, dot, end = name.rpartition(".")
    is_hash = len(stem) == 32 and not set(stem) - set("0123456789abcdef")
    return is_hash and dot + end in (KEPT, _UNFINISHED, _BROKEN)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a plain file for reading; links aren't followed. Raises OSError and FileFault."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise FileFault("it is no plain file")
        yield descriptor
    finally:
        os.close(descriptor)


def _checksum(descriptor: int, size: int) -> str:
    """Return a hash of the file; of a large one, of samples over all of it, both ends included."""
    chain = hashlib.blake2b(b"%d" % size, digest_size=16)
    count = min(size, _WHOLE_BYTES) // _SAMPLE_BYTES + 1
    step = max(_SAMPLE_BYTES, (size - _SAMPLE_BYTES) // count + 1) if size > _WHOLE_BYTES else None
    for offset in range(0, size, step or _SAMPLE_BYTES):
        chain.update(os.pread(descriptor, _SAMPLE_BYTES, offset))
    if step is not None:
        chain.update(os.pread(descriptor, _SAMPLE_BYTES, size - _SAMPLE_BYTES))
    return chain.hexdigest()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
