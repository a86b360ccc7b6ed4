"""Did a process end because memory ran out?"""

from __future__ import annotations

import re
from typing import Final

_KILLED: Final = (-9, 137)
"""SIGKILL, by the kernel's out-of-memory killer; 137 is how shells and containers say so."""

_SIGNS: Final = re.compile(
    r"out of memory|outofmemory|out_of_memory|errorOutOf\w*Memory|insufficient memory"
    r"|(cuda|hip)malloc failed|bad_alloc|cannot allocate memory|memory allocation failed"
    r"|(failed|unable) to allocate|not enough (\w+ )?memory",
    re.IGNORECASE,
)


def ran_out_of_memory(exit_code: int | None, output: str) -> bool:
    """Return whether a process that ended by itself, with these last lines, lacked memory.

    A guess from texts that engines print; for showing and for one more try, nothing else.
    """
    return exit_code in _KILLED or _SIGNS.search(output) is not None
