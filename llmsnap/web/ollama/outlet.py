"""The client's side of an answer that is translated on its way."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import json

from llmsnap.web.ollama.answers import error_text
from llmsnap.web.ollama.events import Lines
from llmsnap.web.outbox import Outbox
from llmsnap.web.outlet import Client, Outlet

_KEPT: Final = re.compile(rb"(?im)^(?:server-timing|x-llmsnap-[a-z-]+|date):[^\r\n]*\r\n")
_STREAM: Final = re.compile(rb"(?i)content-type: *text/event-stream")
_NDJSON: Final = b"Content-Type: application/x-ndjson\r\n"
_JSON: Final = b"Content-Type: application/json\r\n"


class TranslatingOutlet(Outlet):
    """Gets OpenAI's answer, and sends Ollama's.

    A stream is sent on as it comes. Everything else is collected first, so that until its end an
    error can still be the whole answer.
    """

    _collected: list[bytes] | None = None
    _status = (0, b"")
    _kept = b""

    def __init__(
        self,
        client: Client,
        outbox: Outbox,
        lines: Lines,
        whole: Callable[[Any], Any],
        *,
        keep_alive: bool,
        chunks_allowed: bool,
    ) -> None:
        """`whole` translates an answer that is no stream."""
        super().__init__(client, outbox, keep_alive=keep_alive, chunks_allowed=chunks_allowed)
        self._lines = lines
        self._whole = whole

    def open(
        self,
        status: tuple[int, bytes],
        lines: bytes,
        *,
        size: int | None,
        has_body: bool = True,
        pieces: list[bytes],
        complete: bool,
    ) -> None:
        """Send the head of a stream; of everything else, keep what there is."""
        self._lines.note_timing(lines)
        self._kept = b"".join(_KEPT.findall(lines))
        if status[0] != 200 or not _STREAM.search(lines):
            self._collected, self._status = [], status
            self._collect(pieces, complete)
            return
        super().open(
            status,
            _NDJSON + self._kept,
            size=None,
            pieces=self._lines.feed(pieces, complete=complete),
            complete=complete,
        )

    def send(self, pieces: list[bytes], complete: bool) -> None:
        """Send more of a stream; keep more of everything else."""
        if self._collected is not None:
            self._collect(pieces, complete)
        elif not self.is_whole:
            super().send(self._lines.feed(pieces, complete=complete), complete)

    def _collect(self, pieces: list[bytes], complete: bool) -> None:
        assert self._collected is not None
        self._collected += pieces
        if not complete:
            return
        status, body = self._status, b"".join(self._collected)
        self._collected = None
        try:
            said = json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            said = body.decode("utf-8", "replace")
        if status[0] == 200 and isinstance(said, dict):
            answer = self._whole(said)
        else:
            answer = {"error": error_text(said)}
            status = status if status[0] >= 400 else (502, b"Bad Gateway")
        text = json.encode(answer)
        super().open(status, _JSON + self._kept, size=len(text), pieces=[text], complete=True)
