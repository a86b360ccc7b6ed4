"""Files that are in the page cache or out of it, told by mmap and mincore."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_CHUNK = 1024**2


def write_file(path: Path, size: int) -> Path:
    """Write `size` random bytes to `path`, all the way to the disk; they are in the cache then."""
    with path.open("wb") as file:
        for offset in range(0, size, _CHUNK):
            file.write(os.urandom(min(_CHUNK, size - offset)))
        file.flush()
        os.fsync(file.fileno())
    return path


def drop_all() -> None:
    """Have the kernel forget all files that nobody has mapped; takes root."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def drop(path: Path) -> None:
    """Have the kernel forget a file that nobody has mapped."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def resident_bytes(path: Path) -> int:
    """Return how much of `path` is in the page cache, in whole pages."""
    libc = ctypes.CDLL(None, use_errno=True)
    # A private, writable mapping: only of such a one does Python tell the address.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as mapping:
        pages = -(-len(mapping) // mmap.PAGESIZE)
        states = (ctypes.c_ubyte * pages)()
        first = ctypes.c_char.from_buffer(mapping)
        try:
            address = ctypes.c_void_p(ctypes.addressof(first))
            if libc.mincore(address, ctypes.c_size_t(len(mapping)), states) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            del first  # or the mapping can't be closed
    return sum(state & 1 for state in states) * mmap.PAGESIZE
