"""How much of a file lies in the kernel's page cache."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ctypes

_CACHESTAT: Final = 451
"""The number of the system call, on every architecture but Alpha."""


def cached_bytes(fd: int, offset: int, length: int) -> int | None:
    """Return how many of these bytes are in memory.

    None where the kernel doesn't tell: it must be Linux 6.5 or newer, and the file ours.
    """
    if sys.platform != "linux":
        return None
    import ctypes

    span = (ctypes.c_uint64 * 2)(offset, length)
    counts = (ctypes.c_uint64 * 5)()  # the first is of cached pages
    if _libc().syscall(_CACHESTAT, fd, span, counts, 0) != 0:
        return None
    return min(int(counts[0]) * os.sysconf("SC_PAGE_SIZE"), length)


@cache
def _libc() -> ctypes.CDLL:
    import ctypes

    libc: Any = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    return libc  # type: ignore[no-any-return]
