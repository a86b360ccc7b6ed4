"""A file that children get as their output, so that it outlives the proxy that reads it."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from llmsnap.runtime.logs import HISTORY_BYTES, Sink

logger = logging.getLogger(__name__)

_MOST_BYTES: Final = 1024**2
"""Then it is turned over: its end is kept in a second file, and it begins anew."""
_READ_BYTES: Final = 64 * 1024
_LAST_READ_BYTES: Final = 1024**2
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


class Output(Protocol):
    """Where a child prints to, and we read from: a `LogPipe` or a `LogFile`."""

    write_end: int

    def close_write_end(self) -> None: ...

    def close(self) -> None: ...


class LogFile:
    """The last of what a child has printed, in a file of bounded size; read soon after it is there.

    Made for its owner alone. A child that was left by an earlier proxy goes on in its file: what
    is in there is passed on first. Raises OSError when the file can't be had.
    """

    def __init__(self, path: Path, sink: Sink, *, most_bytes: int = _MOST_BYTES) -> None:
        self._path = path
        self._sink = sink
        self._most_bytes = most_bytes
        for part in reversed(log_files(path)):
            sink(_end_of(part))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Appending, so that it goes on at the beginning when the file was emptied.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self.write_end = os.open(path, flags, 0o600)
        self._read_end = os.open(path, os.O_RDONLY)
        self._read_bytes = os.fstat(self._read_end).st_size
        self._pause_s = _FIRST_PAUSE_S
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._pause_s, self._look)

    def close_write_end(self) -> None:
        """Give up our copy of the descriptor, once the child has its own."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def read(self) -> int:
        """Pass on what is new and return its size."""
        taken = 0
        while taken < _LAST_READ_BYTES:
            data = os.pread(self._read_end, _READ_BYTES, self._read_bytes)
            if not data:
                break
            self._read_bytes += len(data)
            taken += len(data)
            self._sink(data)
        return taken

    def close(self) -> None:
        """Take what is still in the file, and read it no more; the file stays where it is."""
        self._timer.cancel()
        self.close_write_end()
        if self._read_end >= 0:
            with suppress(OSError):
                self.read()
            os.close(self._read_end)
            self._read_end = -1

    def _look(self) -> None:
        try:
            new = self.read()
            if self._read_bytes >= self._most_bytes:
                self._turn_over()
        except OSError as error:
            logger.warning("the log %s can't be read: %s; its model goes on", self._path, error)
            return
        self._pause_s = _FIRST_PAUSE_S if new else min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._timer = self._loop.call_later(self._pause_s, self._look)

    def _turn_over(self) -> None:
        """Keep the end of the file, and empty it; a line printed in this very moment is lost."""
        older = log_files(self._path)[1]
        with open(older, "wb", opener=_privately) as file:
            file.write(_end_of(self._path))
        self.read()
        os.truncate(self._path, 0)
        self._read_bytes = 0


def log_files(path: Path) -> tuple[Path, Path]:
    """Return the file that is written to, and the one that keeps the end of what was before."""
    return path, path.with_suffix(".log.1")


def _privately(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o600)


def _end_of(path: Path) -> bytes:
    """Return the last of `path`; empty when it can't be read."""
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - HISTORY_BYTES))
        return file.read(HISTORY_BYTES)
    return b""
