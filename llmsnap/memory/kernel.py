"""What the kernel writes about memory, read as plain text: nothing here opens a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Room:
    """How large something is, and how much of it is left."""

    total_bytes: int
    free_bytes: int

    def within(self, limit_bytes: int | None, free_bytes: int) -> Room:
        """Return what is left of this below a limit of which `free_bytes` are left."""
        if limit_bytes is None:
            return self
        free_bytes = max(0, min(self.free_bytes, free_bytes))
        return Room(min(self.total_bytes, limit_bytes), free_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What processes hold; pages that several of them share count for each."""

    rss_bytes: int = 0
    """All that is in memory: anonymous, file and shared together."""
    anonymous_bytes: int = 0
    file_bytes: int = 0
    shared_bytes: int = 0
    """Shared memory, which only swap can hold, like anonymous memory."""
    swap_bytes: int = 0
    """Anonymous memory that is out; the kernel doesn't tell whose shared memory is."""
    locked_bytes: int = 0
    """Can't be paged out (`mlock`)."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            rss_bytes=self.rss_bytes + other.rss_bytes,
            anonymous_bytes=self.anonymous_bytes + other.anonymous_bytes,
            file_bytes=self.file_bytes + other.file_bytes,
            shared_bytes=self.shared_bytes + other.shared_bytes,
            swap_bytes=self.swap_bytes + other.swap_bytes,
            locked_bytes=self.locked_bytes + other.locked_bytes,
        )


def sizes(text: str) -> dict[str, int]:
    """Return the sizes, in bytes, of a text with lines such as `VmSwap:  12 kB`."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) * 1024
    return found


def counters(text: str) -> dict[str, int]:
    """Return the numbers of a text with lines such as `inactive_file 12`."""
    pairs = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2}


def usage(status: str) -> Usage:
    """Return what /proc/PID/status says; a zombie and a kernel thread hold nothing."""
    found = sizes(status)
    return Usage(
        rss_bytes=found.get("VmRSS", 0),
        anonymous_bytes=found.get("RssAnon", 0),
        file_bytes=found.get("RssFile", 0),
        shared_bytes=found.get("RssShmem", 0),
        swap_bytes=found.get("VmSwap", 0),
        locked_bytes=found.get("VmLck", 0),
    )


def ram(meminfo: Mapping[str, int]) -> Room:
    """Return the machine's memory: what is free, and what is so as soon as it is wanted.

    That includes pages which are both in memory and in swap, while no process has them mapped:
    paging out leaves such copies behind, and the kernel drops them without writing anything.
    """
    copies = _unmapped_copies(
        listed=meminfo.get("Active(anon)", 0) + meminfo.get("Inactive(anon)", 0),
        mapped=meminfo.get("AnonPages", 0),
        shared=meminfo.get("Shmem", 0),
        copies=meminfo.get("SwapCached", 0),
    )
    return _room(meminfo["MemTotal"], meminfo["MemAvailable"] + copies)


def swap(meminfo: Mapping[str, int]) -> Room:
    """Return the machine's swap: what is free, and what the kernel frees when it is wanted.

    That is the place of pages which a process has mapped again since they were written. The place
    of a page that no process has mapped isn't free, even while a copy of it is still in memory.
    """
    listed = meminfo.get("Active(anon)", 0) + meminfo.get("Inactive(anon)", 0)
    copies = meminfo.get("SwapCached", 0)
    unmapped = _unmapped_copies(
        # Locked pages may be anonymous or not: suppose the worse for us.
        listed=listed + meminfo.get("Mlocked", 0),
        mapped=meminfo.get("AnonPages", 0),
        shared=meminfo.get("Shmem", 0),
        copies=copies,
    )
    return _room(meminfo.get("SwapTotal", 0), meminfo.get("SwapFree", 0) + copies - unmapped)


def _room(total_bytes: int, free_bytes: int) -> Room:
    # The kernel's figures are of different moments, so that their sum may be too large.
    return Room(total_bytes, min(free_bytes, total_bytes))


def reclaimable(stat: Mapping[str, int]) -> int:
    """Return how much of a cgroup's memory is free as soon as it is wanted, from memory.stat."""
    copies = _unmapped_copies(
        listed=stat.get("active_anon", 0) + stat.get("inactive_anon", 0),
        mapped=stat.get("anon", stat.get("rss", 0)),
        shared=stat.get("shmem", 0),
        copies=stat.get("swapcached", 0),
    )
    files = stat.get("active_file", 0) + stat.get("inactive_file", 0)
    return files + stat.get("slab_reclaimable", 0) + copies


def parent(stat: str) -> int:
    """Return the parent's pid from /proc/PID/stat."""
    # The name stands in brackets and may hold anything, brackets and blanks included.
    return int(stat[stat.rindex(")") + 2 :].split()[1])


def _unmapped_copies(*, listed: int, mapped: int, shared: int, copies: int) -> int:
    """Return how much of the swap cache no process has mapped.

    The kernel lists every page without a file: mapped ones, shared memory, and these.
    """
    return min(max(listed - mapped - shared, 0), copies)
