"""Standard output that can't hold up the proxy, whoever is slow to read it."""

from __future__ import annotations

import os
import queue
import threading
from typing import Final

_PENDING_CHUNKS: Final = 2000
_LAST_WORDS_S: Final = 1.0


class Stdout:
    """Writes to a descriptor from a thread of its own; drops what a stalled reader leaves over."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_PENDING_CHUNKS)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Hand `data` over; never blocks."""
        try:
            self._chunks.put_nowait(data)
        except queue.Full:
            self._dropped += len(data)

    @property
    def is_drained(self) -> bool:
        """Whether all that was handed over has been written or dropped."""
        return self._chunks.empty()

    def close(self) -> None:
        """Give a reader a moment to take what is pending, then stop."""
        try:
            self._chunks.put(None, timeout=_LAST_WORDS_S)
        except queue.Full:
            return
        self._thread.join(_LAST_WORDS_S)

    def _run(self) -> None:
        while (data := self._chunks.get()) is not None:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                data = b"\n[llmsnap: %d bytes dropped, stdout is stalled]\n" % dropped + data
            try:
                self._write_all(data)
            except OSError:  # nobody reads any more; the logs over HTTP go on
                return

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]
