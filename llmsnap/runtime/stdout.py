"""Standard output that can't hold up the proxy, whoever is slow to read it."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

_PENDING_BYTES: Final = 2 * 2**20
_GATHER_S: Final = 0.05
"""How long lines are gathered: whenever this thread wakes, the loop has to let go of the GIL."""
_LAST_WORDS_S: Final = 1.0


class Stdout:
    """Writes to a descriptor from a thread of its own; drops what a stalled reader leaves over."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._chunks: list[bytes] = []
        self._pending_bytes = 0
        """Of all chunks; two threads count, so that it may be some of them off for a moment."""
        self._news = threading.Event()
        self._is_woken = False
        """Whether the thread will look at what there is; for writers, to whom an Event is slow."""
        self._is_writing = False
        self._is_closed = False
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Hand `data` over; never blocks."""
        if self._pending_bytes < _PENDING_BYTES:
            self._pending_bytes += len(data)
            self._chunks.append(data)
            if not self._is_woken:
                self._is_woken = True
                self._news.set()
        else:
            self._dropped += len(data)

    @property
    def is_drained(self) -> bool:
        """Whether all that was handed over has been written or dropped."""
        return not self._chunks and not self._is_writing

    def close(self) -> None:
        """Give a reader a moment to take what is pending, then stop."""
        self._is_closed = True
        self._news.set()
        self._thread.join(_LAST_WORDS_S)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._news.wait()
            time.sleep(_GATHER_S)
            is_last = self._is_closed
            self._is_woken = False
            self._news.clear()
            self._is_writing, self._pending_bytes = True, 0
            chunks, self._chunks = self._chunks, []
            data = b"".join(chunks)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                data = b"\n[llmsnap: %d bytes dropped, stdout is stalled]\n" % dropped + data
            try:
                self._write_all(data)
            except BrokenPipeError:  # nobody reads any more; the logs over HTTP go on
                return
            finally:
                self._is_writing = False

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except BrokenPipeError:
            raise
        except OSError:  # of a full disk, say, which may have room again
            self._dropped += len(left)
