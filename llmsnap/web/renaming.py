"""Puts the name that the client asked for into the answer (`responseModelName: requested`)."""

from __future__ import annotations

from typing import Final

import msgspec

from llmsnap.web.edits import CantEdit, Document, parse_path
from llmsnap.web.jsonscan import NotJson

_PLACES: Final = tuple(
    path
    for path in map(parse_path, ("model", "response.model", "message.model"))
    if path is not None
)
"""Where OpenAI's chat and responses and Anthropic's messages name the model."""

_DATA: Final = b"data:"
_MOST_HELD_BYTES: Final = 16 * 2**20


class Renamer:
    """Renames the model in an answer that passes: JSON once it is whole, events line by line."""

    def __init__(self, name: str, *, is_event_stream: bool) -> None:
        self._name = msgspec.json.encode(name)
        self._is_event_stream = is_event_stream
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._gave_up = False

    def feed(self, pieces: list[bytes], complete: bool) -> list[bytes]:
        """Take in pieces of the body; return what may go on."""
        if self._gave_up:
            return pieces
        self._held += pieces
        self._held_bytes += sum(map(len, pieces))
        if self._held_bytes > _MOST_HELD_BYTES:  # too large to be one of those that name a model
            self._gave_up = True
            return [self._taken()]
        if self._is_event_stream:
            return self._lines(complete)
        return [renamed(self._taken(), self._name)] if complete else []

    def _lines(self, complete: bool) -> list[bytes]:
        lines = self._taken().split(b"\n")
        if not complete:
            self._held = [lines.pop()]
            self._held_bytes = len(self._held[0])
            lines.append(b"")
        return [b"\n".join(self._line(line) for line in lines)]

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(_DATA) or b'"model"' not in line:
            return line
        return _DATA + renamed(line[len(_DATA) :], self._name)

    def _taken(self) -> bytes:
        held, self._held, self._held_bytes = self._held, [], 0
        return b"".join(held)


def renamed(text: bytes, name: bytes) -> bytes:
    """Return the JSON `text` with `name` (JSON too) wherever it names its model."""
    try:
        document = Document(text)
        for path in _PLACES:
            document.replace(path, name)
        return b"".join(document.segments())
    except (CantEdit, NotJson):
        return text
