"""Which parts of a process's memory are in, and which are out in swap."""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from llmsnap.sleep.madvise import Span

# One entry of /proc/PID/pagemap is eight bytes; the first two bits say where the page is. A few
# pages of another kind between two runs cost less than one more span.
IN_MEMORY: Final = re.compile(rb"[\x80-\xff]+(?:[\x00-\x7f]{1,15}[\x80-\xff]+)*")
IN_SWAP: Final = re.compile(rb"[\x40-\x7f]+(?:[\x00-\x3f\x80-\xff]{1,15}[\x40-\x7f]+)*")

_ENTRY: Final = 8
_TOP_BYTE: Final = 7 if sys.byteorder == "little" else 0
_PAGES_AT_ONCE: Final = 1 << 14
_DEVICES: Final = re.compile(r"/dev/(?!shm/|zero|hugepages)|anon_inode:|\[v")
"""What isn't memory, or not the process's own; touching a device's registers may do harm."""


class Mapping(NamedTuple):
    """One line of /proc/PID/maps."""

    start: int
    end: int
    permissions: str
    path: str
    """A file, a name in brackets, or empty."""

    @property
    def movable(self) -> bool:
        """Whether its pages may be paged out and read."""
        return self.permissions.startswith("r") and not _DEVICES.match(self.path)


def parse(maps: str) -> Iterator[Mapping]:
    """Yield the mappings that /proc/PID/maps lists."""
    for line in maps.splitlines():
        place, permissions, _, _, _, *path = line.split(maxsplit=5)
        start, end = place.split("-")
        yield Mapping(int(start, 16), int(end, 16), permissions, path[0] if path else "")


def mappings(process: Path) -> list[Mapping]:
    """Return the mappings of the process with the folder `process` in /proc.

    Raises OSError when it is gone or may not be looked at.
    """
    return list(parse((process / "maps").read_text(errors="replace")))


def spans(pid: int, where: re.Pattern[bytes]) -> list[Span]:
    """Return the memory of `pid` that is `IN_MEMORY` or `IN_SWAP`; raises OSError as above."""
    found: list[Span] = []
    process = Path(f"/proc/{pid}")
    with (process / "pagemap").open("rb", buffering=0) as pagemap:
        for mapping in mappings(process):
            if not mapping.movable:
                continue
            first, last = mapping.start // mmap.PAGESIZE, mapping.end // mmap.PAGESIZE
            for page in range(first, last, _PAGES_AT_ONCE):
                pagemap.seek(page * _ENTRY)
                entries = pagemap.read(min(_PAGES_AT_ONCE, last - page) * _ENTRY)
                found += runs(entries, page * mmap.PAGESIZE, where)
    return found


def runs(entries: bytes, start: int, where: re.Pattern[bytes]) -> Iterator[Span]:
    """Yield what is `where` of memory that begins at `start` and has these pagemap entries."""
    for run in where.finditer(entries[_TOP_BYTE::_ENTRY]):
        length = run.end() - run.start()
        yield Span(start + run.start() * mmap.PAGESIZE, length * mmap.PAGESIZE)
