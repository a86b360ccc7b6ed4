"""Did a process end because memory ran out?"""

from __future__ import annotations

import re
from typing import Final

_KILLED: Final = (-9, 137)
"""SIGKILL, by the kernel's out-of-memory killer; 137 is how shells and containers say so."""

_SIGNS: Final = re.compile(
    r"out[ _-]?of[ _-]?memory|errorOutOf\w*Memory|insufficient memory"
    r"|(cuda|hip|musa)malloc\w* failed|ALLOC_FAILED|OUT_OF_(HOST|DEVICE|RESOURCES)"
    r"|bad_alloc|cannot allocate memory|\bENOMEM\b|MemoryError\b"
    r"|memory allocation( of (size )?\d+( bytes)?)? failed"
    r"|(failed|unable) to allocate(?! \S+ \S+ of pinned)(?! pinned)"
    r"|not enough (\w+ )?memory|no available memory for the cache"
    r"|less than desired GPU memory utilization",
    re.IGNORECASE,
)
"""Pinned memory is asked for on trial: without it, llama.cpp takes other memory."""


def ran_out_of_memory(
    exit_code: int | None, output: str, *, kernel_kills: int | None = None
) -> bool:
    """Return whether a process that ended by itself, with these last lines, lacked memory.

    `kernel_kills`: how many processes the kernel has ended for that since it began; None: it
    doesn't tell, and whoever was killed counts as one of them. A guess from what engines print; for
    showing and for one more try, nothing else.
    """
    if exit_code in _KILLED:
        return kernel_kills is None or kernel_kills > 0
    return _SIGNS.search(output) is not None
