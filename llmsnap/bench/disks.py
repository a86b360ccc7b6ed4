"""What disks do: bytes read since the start, how fast, and the page cache emptied."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from llmsnap.errors import LlmsnapError
from llmsnap.memory.kernel import counters

_DROP: Final = Path("/proc/sys/vm/drop_caches")
_SAMPLE_BYTES: Final = 512 * 2**20
_CHUNK_BYTES: Final = 4 * 2**20
_COUNTERS: Final = Path("/proc/vmstat")


def read_bytes() -> int | None:
    """Return what this machine has read from all disks since its start; None: it doesn't tell."""
    try:
        return counters(_COUNTERS.read_text())["pgpgin"] * 1024
    except (OSError, KeyError):
        return None


def bytes_per_s(path: Path) -> float | None:
    """Return how fast a file comes from its disk, read in order; None: it can't be read."""
    try:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            began, came = time.monotonic(), 0
            while came < _SAMPLE_BYTES and (chunk := file.read(_CHUNK_BYTES)):
                came += len(chunk)
            return came / max(time.monotonic() - began, 1e-6)
    except OSError:
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
