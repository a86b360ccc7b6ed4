"""What disks do: bytes read since the start, and the page cache emptied."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from llmsnap.errors import LlmsnapError
from llmsnap.memory.kernel import counters

_DROP: Final = Path("/proc/sys/vm/drop_caches")
_COUNTERS: Final = Path("/proc/vmstat")


def read_bytes() -> int | None:
    """Return what this machine has read from all disks since its start; None: it doesn't tell."""
    try:
        return counters(_COUNTERS.read_text())["pgpgin"] * 1024
    except (OSError, KeyError):
        return None


def may_forget() -> bool:
    """Whether `forget_files` is allowed here."""
    return os.access(_DROP, os.W_OK)


def forget_files() -> None:
    """Have the kernel forget all files that nobody has mapped. Raises LlmsnapError."""
    os.sync()
    try:
        _DROP.write_text("3")
    except OSError as error:
        raise LlmsnapError(f"the page cache can't be emptied: {error}; --cold needs root") from None
