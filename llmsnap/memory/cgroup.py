"""The memory limits that this process is under: cgroups of both versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from llmsnap.memory import kernel

_NO_LIMIT: Final = 1 << 60
"""Version 1 writes a number next to 2^63 where there is none."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the files of one cgroup are."""

    path: PurePosixPath
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One cgroup's limits, and what is left of them; no limit is None."""

    limit_bytes: int | None = None
    free_bytes: int = 0
    swap_limit_bytes: int | None = None
    swap_free_bytes: int = 0


def folders(membership: str, mountinfo: str) -> Iterator[Folder]:
    """Yield the memory cgroups of a process, from its own one up to the topmost it can see.

    `membership` is its /proc/PID/cgroup, `mountinfo` its /proc/PID/mountinfo.
    """
    for mount in _mounts(mountinfo):
        path = _path(membership, mount.version)
        if path is None:
            continue
        try:
            below = PurePosixPath(path).relative_to(mount.root)
        except ValueError:  # a container's own view: the mount is the cgroup itself
            below = PurePosixPath()
        if ".." in below.parts:
            below = PurePosixPath()
        for part in (below, *below.parents) if below.parts else (below,):
            yield Folder(mount.point / part, mount.version)


def read_level(folder: Path, version: int) -> Level:
    """Return the limits of one cgroup; files that aren't there set none."""
    return _read_second(folder) if version == 2 else _read_first(folder)


def _read_second(folder: Path) -> Level:
    limits = [_number(folder / name) for name in ("memory.max", "memory.high")]
    limit = min((number for number in limits if number is not None), default=None)
    used = _number(folder / "memory.current") or 0
    swap_limit = _number(folder / "memory.swap.max")
    swap_used = _number(folder / "memory.swap.current") or 0
    return Level(
        limit_bytes=limit,
        free_bytes=(limit or 0) - used + _reclaimable(folder),
        swap_limit_bytes=swap_limit,
        swap_free_bytes=(swap_limit or 0) - swap_used,
    )


def _read_first(folder: Path) -> Level:
    limit = _number(folder / "memory.limit_in_bytes")
    used = _number(folder / "memory.usage_in_bytes") or 0
    # Version 1 limits memory and swap together.
    both = _number(folder / "memory.memsw.limit_in_bytes")
    both_used = _number(folder / "memory.memsw.usage_in_bytes") or 0
    swap_limit = None if both is None else max(0, both - (limit or 0))
    return Level(
        limit_bytes=limit,
        free_bytes=(limit or 0) - used + _reclaimable(folder),
        swap_limit_bytes=swap_limit,
        swap_free_bytes=(swap_limit or 0) - max(0, both_used - used),
    )


def _reclaimable(folder: Path) -> int:
    try:
        stat = kernel.counters((folder / "memory.stat").read_text())
    except OSError:
        return 0
    # Version 1 counts the cgroup alone under the plain names; the limit is for those below too.
    prefix = "total_"
    totals = {name.removeprefix(prefix): n for name, n in stat.items() if name.startswith(prefix)}
    return kernel.reclaimable(totals or stat)


def _number(file: Path) -> int | None:
    """Return the number in `file`; None for `max`, for no limit and for no such file."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None


@dataclass(frozen=True, slots=True)
class _Mount:
    root: PurePosixPath
    point: PurePosixPath
    version: int


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        place, _, kind = line.partition(" - ")
        words, (filesystem, *_, options) = place.split(), kind.split()
        if filesystem == "cgroup2":
            version = 2
        elif filesystem == "cgroup" and "memory" in options.split(","):
            version = 1
        else:
            continue
        yield _Mount(_unescaped(words[3]), _unescaped(words[4]), version)


def _path(membership: str, version: int) -> str | None:
    for line in membership.splitlines():
        number, controllers, path = line.split(":", 2)
        if version == 2 and number == "0" and not controllers:
            return path
        if version == 1 and "memory" in controllers.split(","):
            return path
    return None


def _unescaped(word: str) -> PurePosixPath:
    return PurePosixPath(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), word))
