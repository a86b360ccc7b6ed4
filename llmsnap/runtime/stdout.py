"""Standard output that can't hold up the proxy, whoever is slow to read it."""

from __future__ import annotations

import os
import threading
import time
from queue import Empty, SimpleQueue
from typing import Final

_PENDING_CHUNKS: Final = 2000
_GATHER_S: Final = 0.01
"""How long lines are gathered: a thread that is woken for each takes more time than the line."""
_LAST_WORDS_S: Final = 1.0


class Stdout:
    """Writes to a descriptor from a thread of its own; drops what a stalled reader leaves over."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._chunks: SimpleQueue[bytes | None] = SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Hand `data` over; never blocks."""
        if self._chunks.qsize() < _PENDING_CHUNKS:
            self._chunks.put(data)
        else:
            self._dropped += len(data)

    @property
    def is_drained(self) -> bool:
        """Whether all that was handed over has been written or dropped."""
        return self._chunks.empty()

    def close(self) -> None:
        """Give a reader a moment to take what is pending, then stop."""
        self._chunks.put(None)
        self._thread.join(_LAST_WORDS_S)

    def _run(self) -> None:
        while (first := self._chunks.get()) is not None:
            time.sleep(_GATHER_S)
            data, is_last = self._gathered(first)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                data = b"\n[llmsnap: %d bytes dropped, stdout is stalled]\n" % dropped + data
            try:
                self._write_all(data)
            except OSError:  # nobody reads any more; the logs over HTTP go on
                return
            if is_last:
                return

    def _gathered(self, first: bytes) -> tuple[bytes, bool]:
        """Return `first` with all that waits behind it, and whether the end is among that."""
        chunks = [first]
        try:
            while (chunk := self._chunks.get_nowait()) is not None:
                chunks.append(chunk)
        except Empty:
            return b"".join(chunks), False
        return b"".join(chunks), True

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]
