"""Page out a cgroup of version 2 that holds nothing but the model: needs no capability."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from llmsnap.sleep.offload import Deadline

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_MOUNTS: Final = (Path(), Path("unified"))
_STEP_BYTES: Final = 256 << 20
_FRUITLESS_STEPS: Final = 3


def own_cgroup(pids: Collection[int], *, root: Path = _CGROUPS, proc: Path = _PROC) -> Path | None:
    """Return the folder of the cgroup that holds `pids` and nobody else, if we may reclaim it."""
    folders = {_folder(proc / str(pid), root) for pid in pids}
    if len(folders) != 1 or (folder := folders.pop()) is None:
        return None
    if not os.access(folder / "memory.reclaim", os.W_OK) or not _members(folder) <= set(pids):
        return None
    return folder


def reclaim(folder: Path, deadline: Deadline) -> None:
    """Page out all that the cgroup holds, as far as the kernel manages; raises TimeoutError."""
    fruitless = 0
    while fruitless < _FRUITLESS_STEPS and (held := _held(folder)):
        deadline.check()
        fruitless = fruitless if _step(folder, min(held, _STEP_BYTES)) else fruitless + 1


def _step(folder: Path, size: int) -> bool:
    """Ask for `size` bytes; return whether the kernel found as many."""
    try:
        (folder / "memory.reclaim").write_text(str(size))
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return False
    return True


def _held(folder: Path) -> int:
    return int((folder / "memory.current").read_text())


def _members(folder: Path) -> set[int]:
    texts = (file.read_text() for file in folder.rglob("cgroup.procs"))
    return {int(line) for text in texts for line in text.splitlines()}


def _folder(process: Path, root: Path) -> Path | None:
    try:
        lines = (process / "cgroup").read_text().splitlines()
    except OSError:
        return None
    paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    for mount in _MOUNTS:
        if paths and paths[0] and (root / mount / paths[0] / "cgroup.procs").exists():
            return root / mount / paths[0]
    return None
