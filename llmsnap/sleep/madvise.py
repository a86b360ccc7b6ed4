"""System calls on another process's memory: page it out, fetch it, read it through."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

_PROCESS_MADVISE: Final = 440
_MOST_SPANS: Final = 1024
"""The kernel takes no more in one call."""
_REFUSED_SPAN: Final = (errno.ENOMEM, errno.EINVAL, errno.EAGAIN, errno.EFAULT)
"""What the kernel says of memory that is locked, unmapped or of a kind that can't be advised on."""
_SCRATCH_BYTES: Final = 1 << 18


class Span(NamedTuple):
    """A piece of a process's address space, in bytes."""

    start: int
    length: int


class Advice(IntEnum):
    """What the kernel is to do, as in <linux/mman.h>."""

    NEEDED_SOON = 3
    """MADV_WILLNEED: begin to read it, from swap or from its file."""
    PAGE_OUT = 21
    """MADV_PAGEOUT."""


class _Vector(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def batches(spans: Iterable[Span], most_bytes: int) -> Iterator[list[Span]]:
    """Yield `spans` in lists of at most `most_bytes`; longer ones are cut."""
    batch: list[Span] = []
    room = most_bytes
    for start, length in spans:
        while length:
            piece = Span(start, min(length, room))
            batch.append(piece)
            start, length, room = start + piece.length, length - piece.length, room - piece.length
            if not room or len(batch) == _MOST_SPANS:
                yield batch
                batch, room = [], most_bytes
    if batch:
        yield batch


def fault(pid: int, advice: Advice) -> str:
    """Return why the kernel wouldn't take `advice` on `pid`, with the remedy; empty when it would.

    It is asked for no memory at all, so nothing happens.
    """
    try:
        with _Handle(pid) as handle:
            _madvise(handle, [], advice)
    except PermissionError:
        return (
            "process_madvise needs CAP_SYS_NICE; give llmsnap the capability (systemd: "
            "AmbientCapabilities=CAP_SYS_NICE), or start the model in a cgroup of its own "
            "(`systemd-run --user --scope llama-server …`)"
        )
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL):
            return "this kernel can't page out other processes; it takes Linux 5.18 or newer"
        return f"process_madvise fails: {error.strerror}"
    return ""


def advise(pid: int, spans: Sequence[Span], advice: Advice) -> int:
    """Give `advice` on `spans` of `pid`, 2 GiB at most; return how many bytes the kernel took.

    Spans that the kernel refuses are left out. Raises OSError when it refuses altogether.
    """
    pending = deque(spans)
    taken = 0
    with _Handle(pid) as handle:
        while pending:
            try:
                count = _madvise(handle, pending, advice)
            except OSError as error:
                if error.errno not in _REFUSED_SPAN:
                    raise
                pending.popleft()
                continue
            if not count:
                break
            taken += count
            _drop(pending, count)
    return taken


def read_through(pid: int, span: Span) -> int:
    """Read `span` of `pid`, which maps its pages there; return how many bytes could be read.

    Raises PermissionError and ProcessLookupError.
    """
    scratch = ctypes.create_string_buffer(min(span.length, _SCRATCH_BYTES))
    here = _Vector(ctypes.addressof(scratch))
    done = 0
    while done < span.length:
        here.length = min(span.length - done, len(scratch))
        there = _Vector(span.start + done, here.length)
        args = (ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1))
        count = _libc().process_vm_readv(ctypes.c_int(pid), *args, ctypes.c_ulong(0))
        if count < 0 and ctypes.get_errno() == errno.EFAULT:
            break
        done += _checked(count)
    return done


class _Handle:
    """A pidfd while a block lasts: it never means another process that got the same pid."""

    def __init__(self, pid: int) -> None:
        self._number = os.pidfd_open(pid)

    def __enter__(self) -> int:
        return self._number

    def __exit__(self, *_: object) -> None:
        os.close(self._number)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    return libc


def _madvise(handle: int, spans: Iterable[Span], advice: Advice) -> int:
    vectors = [_Vector(*span) for span in spans]
    array = (_Vector * len(vectors))(*vectors)
    return _checked(
        _libc().syscall(
            ctypes.c_long(_PROCESS_MADVISE),
            ctypes.c_int(handle),
            array,
            ctypes.c_size_t(len(vectors)),
            ctypes.c_int(advice),
            ctypes.c_uint(0),
        )
    )


def _checked(count: int) -> int:
    """Return what a call returned; raise OSError when it failed."""
    if count < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return count


def _drop(pending: deque[Span], count: int) -> None:
    """Take the first `count` bytes away: the kernel may stop in the middle of a span."""
    while count:
        start, length = pending.popleft()
        if length > count:
            pending.appendleft(Span(start + count, length - count))
        count -= min(length, count)
