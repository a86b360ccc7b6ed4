"""Whether processes that a test doesn't own still live."""

from __future__ import annotations

import psutil


def lives(pid: int) -> bool:
    """Whether `pid` still runs; one that only waits to be reaped doesn't."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
