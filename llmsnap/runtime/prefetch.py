"""Reads the files of a model that is waited for into the page cache, before it can start."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from llmsnap.config.argv import llama_words
from llmsnap.config.parts import parts_of
from llmsnap.core.messages import (
    Action,
    Admit,
    Event,
    ModelChanged,
    ModelView,
    RequestArrived,
)
from llmsnap.core.slot import DOWN
from llmsnap.memory.llama_flags import read_flags
from llmsnap.memory.pagecache import cached_bytes

logger = logging.getLogger(__name__)

_MIB: Final = 1024**2
_WINDOW_BYTES: Final = 16 * _MIB
_LARGE_BYTES: Final = 16 * _MIB
"""A file this large, in a command that says nothing clearer, is a model."""
_KEPT_BYTES: Final = 1024 * _MIB
_KEPT_SHARE: Final = 10
_TOLD_BYTES: Final = 64 * _MIB

_TELLING: Final = (RequestArrived, ModelChanged)
"""After these a model may be wanted that wasn't, or can't start although it is."""


def files_of(argv: Sequence[str], env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files that a server with this command reads when it starts.

    They are what llama-server's options name, a split model's parts with it; where these name
    none, all large files among the arguments. Empty when they are read past the page cache.
    """
    flags = read_flags(argv, env)
    if flags.direct_io:
        return ()
    found = [path for path in flags.files if _size(path)]
    if not found:
        found = [word for word in llama_words(argv) if _size(word) > _LARGE_BYTES]
    parts = (part for path in found for part in parts_of(path) if _size(part))
    return tuple(dict.fromkeys(map(Path, parts)))


def spare_bytes(free_bytes: int) -> int:
    """Return how much of the memory that is free files may fill: all but 10 %, or but 1 GiB."""
    return max(0, free_bytes - max(_KEPT_BYTES, free_bytes // _KEPT_SHARE))


class Prefetch:
    """Reads one model's files in a thread of its own; nothing that goes wrong there matters.

    `free_bytes` says how much memory is free, the page cache included. It is asked in the thread.
    """

    def __init__(
        self,
        model: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        free_bytes: Callable[[], int],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._argv = argv
        self._env = env
        self._free_bytes = free_bytes
        self._clock = clock
        self._called_off: threading.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_reading(self) -> bool:
        """Whether the thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self) -> None:
        """Begin to read; nothing more happens when called again, until `cancel`."""
        if self._called_off is not None:
            return
        self._called_off = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._called_off,), name=f"prefetch {self._model}", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # there are too many threads
            logger.debug("model %s: nothing is read ahead: %s", self._model, error)

    def cancel(self) -> None:
        """Have the thread end with the window that it is reading; return at once."""
        if self._called_off is not None:
            self._called_off.set()
            self._called_off = None

    def _run(self, called_off: threading.Event) -> None:
        began = self._clock()
        reading = _Reading(self._free_bytes, called_off)
        try:
            reading.take(files_of(self._argv, self._env))
        except Exception as error:  # a thread's root: to read ahead is never needed
            logger.debug("model %s: reading ahead failed: %s", self._model, error)
        if reading.read_bytes > _TOLD_BYTES:
            text = "model %s: read %.0f MiB ahead of its start in %.2f s"
            logger.debug(text, self._model, reading.read_bytes / _MIB, self._clock() - began)


class ReadAhead:
    """Has the files of the model that is wanted next read while it can't start yet.

    One model at a time, in the order in which they came to be wanted. A model without a `Prefetch`
    isn't looked at.
    """

    def __init__(
        self, prefetches: Mapping[str, Prefetch], view: Callable[[str], ModelView]
    ) -> None:
        self._prefetches = prefetches
        self._view = view
        self._wanted: list[str] = []
        self._read: str | None = None
        """Whose files are being read, or have been."""

    def follow(self, event: Event, actions: Sequence[Action]) -> None:
        """Look whom clients wait for after `event`; next to nothing is done when nobody waits."""
        if isinstance(event, _TELLING):
            admitted = bool(actions) and isinstance(actions[0], Admit)
            if not admitted and event.model not in self._wanted:
                self._wanted.append(event.model)
        if self._wanted:
            self._wanted = [model for model in self._wanted if self._is_wanted(model)]
            self._turn_to(self._wanted[0] if self._wanted else None)

    def adopt(self, prefetches: Mapping[str, Prefetch]) -> None:
        """Go by other commands; what is being read is begun anew when it is still wanted."""
        self._turn_to(None)
        self._prefetches = prefetches

    def close(self) -> None:
        """Read nothing more."""
        self._wanted.clear()
        self._turn_to(None)

    def _is_wanted(self, model: str) -> bool:
        if model not in self._prefetches:
            return False
        view = self._view(model)
        return view.waiting > 0 and view.state in DOWN

    def _turn_to(self, model: str | None) -> None:
        if model == self._read:
            return
        if self._read is not None:
            self._prefetches[self._read].cancel()
        if model is not None:
            self._prefetches[model].begin()
        self._read = model


class _Reading:
    """Reads files window by window, as long as it may."""

    def __init__(self, free_bytes: Callable[[], int], called_off: threading.Event) -> None:
        self.read_bytes = 0
        """What came from the disk, as far as the kernel tells."""
        self._cached_bytes = 0
        self._free_bytes = free_bytes
        self._called_off = called_off
        self._window = memoryview(bytearray(_WINDOW_BYTES))

    def take(self, paths: Sequence[Path]) -> None:
        """Read all of `paths`; raise OSError."""
        for path in paths:
            with path.open("rb", buffering=0) as file:
                if not self._take(file.fileno()):
                    return

    def _take(self, fd: int) -> bool:
        """Read one file; return False when that is the end of it all."""
        size, taken = os.fstat(fd).st_size, 0
        missing = size - (cached_bytes(fd, 0, size) or 0)
        while taken < size:
            length = min(_WINDOW_BYTES, size - taken)
            if not self._has_room(length) or self._called_off.is_set():
                break
            if cached_bytes(fd, taken, length) != length:
                # Plainly: advice (WILLNEED, SEQUENTIAL) before it made this no faster, or slower.
                os.preadv(fd, [self._window[:length]], taken)
            taken += length
            self._cached_bytes += length
        self.read_bytes += min(missing, taken)
        return taken == size

    def _has_room(self, length: int) -> bool:
        """Whether there is room for all that is in the cache by now and `length` more."""
        return self._cached_bytes + length <= spare_bytes(self._free_bytes())


def _size(path: str) -> int:
    """Return the size of a regular file; 0 when it isn't one."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # no such file, or no such name
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
