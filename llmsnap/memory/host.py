"""This machine's RAM and swap, as far as this process may use them, and what processes hold."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from operator import add
from pathlib import Path

from llmsnap.memory import cgroup, kernel
from llmsnap.memory.device import Reading, Readings
from llmsnap.memory.kernel import Room, Usage


class Host:
    """Reads RAM and swap; a `MemoryProbe` of the devices `host` and `swap`.

    `root` is the folder under which `proc` and `sys` are looked for.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, root: Path = Path("/")
    ) -> None:
        self._clock = clock
        self._root = root
        self._proc = root / "proc"

    async def read(self) -> Readings:
        """Return RAM as `host`, and `swap`, which is of size 0 where there is none."""
        try:
            ram, swap = await asyncio.to_thread(lambda: (self.ram(), self.swap()))
        except (OSError, KeyError, ValueError) as error:
            return Readings(fault=f"this machine's memory can't be read: {error}")
        now = self._clock()
        return Readings(devices=(_reading("host", ram, now), _reading("swap", swap, now)))

    async def room_for(self, pid: int) -> int:
        """Return how many bytes more of RAM the process `pid` may take."""
        return (await asyncio.to_thread(self.ram, pid)).free_bytes

    async def aclose(self) -> None:
        """Nothing is held open."""

    def ram(self, pid: int | None = None) -> Room:
        """Return the memory that `pid` may use: the machine's, within the limits of its cgroups.

        None is this process.
        """
        if sys.platform != "linux":
            return _psutil_ram()
        room = kernel.ram(self._meminfo())
        for level in self._levels(pid):
            room = room.within(level.limit_bytes, level.free_bytes)
        return room

    def swap(self, pid: int | None = None) -> Room:
        """Return the swap that `pid` may use: the machine's, within the limits of its cgroups.

        None is this process.
        """
        if sys.platform != "linux":
            return _psutil_swap()
        room = kernel.swap(self._meminfo())
        for level in self._levels(pid):
            room = room.within(level.swap_limit_bytes, level.swap_free_bytes)
        return room

    def tree(self, pid: int) -> tuple[int, ...]:
        """Return `pid` and its living descendants, parents first; empty when it isn't there."""
        return self.trees([pid])[pid]

    def trees(self, pids: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Return the same of each of `pids`, out of one look at all processes."""
        if sys.platform != "linux":
            return {pid: _psutil_tree(pid) for pid in pids}
        children: dict[int, list[int]] = {}
        living = set()
        for entry in self._proc.iterdir():
            if entry.name.isdigit() and (stat := _text(entry / "stat")):
                living.add(int(entry.name))
                children.setdefault(kernel.parent(stat), []).append(int(entry.name))
        return {pid: _below(pid, children) if pid in living else () for pid in pids}

    def usage(self, pids: Iterable[int]) -> Usage:
        """Return what `pids` hold together; those that are gone hold nothing."""
        if sys.platform != "linux":
            return Usage(rss_bytes=sum(map(_psutil_rss, pids)))
        texts = (_text(self._proc / str(pid) / "status") for pid in pids)
        return reduce(add, map(kernel.usage, texts), Usage())

    def pss_bytes(self, pids: Iterable[int]) -> int:
        """Return what `pids` hold, of pages that several processes share only their part.

        The kernel walks through all their pages for it: ask when somebody wants to know.
        """
        texts = (_text(self._proc / str(pid) / "smaps_rollup") for pid in pids)
        return sum(kernel.sizes(text).get("Pss", 0) for text in texts)

    def _meminfo(self) -> dict[str, int]:
        return kernel.sizes((self._proc / "meminfo").read_text())

    def _levels(self, pid: int | None) -> Iterator[cgroup.Level]:
        # The mounts are ours: through them the files are read.
        membership = _text(self._proc / ("self" if pid is None else str(pid)) / "cgroup")
        for folder in cgroup.folders(membership, _text(self._proc / "self" / "mountinfo")):
            path = self._root / folder.path.relative_to("/")
            yield cgroup.read_level(path, folder.version)


def _reading(device: str, room: Room, now: float) -> Reading:
    return Reading(
        device=device, total_bytes=room.total_bytes, free_bytes=room.free_bytes, taken_at=now
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _below(pid: int, children: Mapping[int, Iterable[int]]) -> tuple[int, ...]:
    found = [pid]
    for parent in found:  # grows as it goes
        found += sorted(children.get(parent, ()))
    return tuple(found)


def _psutil_tree(pid: int) -> tuple[int, ...]:
    import psutil

    try:
        return (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True)))
    except psutil.Error:
        return ()


def _psutil_rss(pid: int) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _psutil_ram() -> Room:
    import psutil

    memory = psutil.virtual_memory()
    return Room(memory.total, memory.available)


def _psutil_swap() -> Room:
    import psutil

    memory = psutil.swap_memory()
    return Room(memory.total, memory.free)
