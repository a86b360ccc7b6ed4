"""Looks at machines that are made up for a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmsnap.memory.device import Reading
from llmsnap.memory.kernel import Usage
from llmsnap.memory.machine import Look, Tree

GIB = 1024**3


def gib(size: float) -> int:
    """Return so many GiB in bytes."""
    return round(size * GIB)


def reading(device: str, used: float, *, total: float = 24, **more: Any) -> Reading:
    """A device of which so many GiB are used; `processes` is in GiB by pid."""
    processes = more.pop("processes", None)
    return Reading(
        device=device,
        total_bytes=gib(total),
        free_bytes=gib(total - used),
        taken_at=0.0,
        processes=None if processes is None else {pid: gib(n) for pid, n in processes.items()},
        **more,
    )


def tree(*pids: int, anonymous: float = 0.0, file: float = 0.0, swap: float = 0.0) -> Tree:
    """Processes that hold so many GiB."""
    usage = Usage(
        rss_bytes=gib(anonymous + file),
        anonymous_bytes=gib(anonymous),
        file_bytes=gib(file),
        swap_bytes=gib(swap),
    )
    return Tree(pids, usage)


def look(*readings: Reading, stale: str = "", faults: tuple[str, ...] = (), **trees: Tree) -> Look:
    """What was seen: devices, and the processes of models."""
    return Look(
        devices={one.device: one for one in readings},
        trees=trees,
        stale=frozenset(stale.split()),
        faults=faults,
    )


def in_gib(bytes_: Mapping[str, int]) -> dict[str, float]:
    """The same figures in GiB, to two decimals."""
    return {name: round(size / GIB, 2) for name, size in bytes_.items()}
