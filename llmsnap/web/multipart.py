"""Finds one field in a multipart body, by its bytes and while they come in (RFC 7578)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from llmsnap.errors import BadRequest
from llmsnap.web.body import Buffer, HeldBody

_BOUNDARY: Final = re.compile(r'boundary=(?:"([^"]+)"|([^\s;,"]+))', re.IGNORECASE)
_NAME: Final = re.compile(rb'[;\s]name=(?:"([^"]*)"|([^\s;"]+))', re.IGNORECASE)
_FILENAME: Final = re.compile(rb"[;\s]filename\*?=", re.IGNORECASE)
_HEADER_BYTES: Final = 16 * 1024
_FIELD_BYTES: Final = 4 * 1024


@dataclass(frozen=True, slots=True)
class Field:
    """Where the value of a field lies in its body."""

    start: int
    end: int
    value: bytes


async def find_field(body: HeldBody, content_type: str, name: bytes) -> Field | None:
    """Return the first field of that name that isn't a file; hold no more than it takes to see it.

    None when there is none. Raises BadRequest when the body isn't multipart.
    """
    search = _Search(_delimiter(content_type), name)
    more = True
    while more:
        more = not body.complete and await body.more()
        if (field := search.advance(await body.view())) or search.ended:
            return field
    if body.size and not search.began:
        raise BadRequest("the multipart body doesn't begin with its boundary")
    return None


def _delimiter(content_type: str) -> bytes:
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise BadRequest("the Content-Type multipart/form-data names no boundary")
    return b"\r\n--" + (found[1] or found[2]).encode()


class _Search:
    """How far the search has got in a body that grows."""

    def __init__(self, delimiter: bytes, name: bytes) -> None:
        self._delimiter = delimiter
        self._name = name
        self._at = -1
        """Where to look on; negative: the first part isn't done."""
        self.began = False
        self.ended = False

    def advance(self, held: Buffer) -> Field | None:
        """Look through what is held so far; None: not there, or not yet."""
        while (start := self._part(held)) is not None:
            if (value := self._value(held, start)) is None:
                return None
            field, self._at = value
            if field is not None:
                return field
        return None

    def _part(self, held: Buffer) -> int | None:
        """Return where the headers of the next part begin."""
        opening = self._delimiter[2:]  # the first one needs no line break before it
        if self._at < 0 and held[: len(opening)] == opening:
            at = -2
        else:
            at = held.find(self._delimiter, max(self._at, 0))
            if at < 0:
                self._at = max(self._at, len(held) - len(self._delimiter))
                return None
        start = at + len(self._delimiter)
        if len(held) < start + 2:
            return None
        self.began = True
        self._at = at
        self.ended = held[start : start + 2] == b"--"
        return None if self.ended else start

    def _value(self, held: Buffer, start: int) -> tuple[Field | None, int] | None:
        """Return the field, if it is the one, and where to go on; None: its end isn't here yet."""
        blank = held.find(b"\r\n\r\n", start)
        if blank < 0:
            _bound(len(held) - start, _HEADER_BYTES, "a part's header")
            return None
        begin = blank + 4
        if not self._is_wanted(held[start:blank]):
            return None, blank
        end = held.find(self._delimiter, begin)
        if end < 0:
            _bound(len(held) - begin, _FIELD_BYTES, f"the field {self._name.decode()!r}")
            return None
        return Field(begin, end, held[begin:end]), end

    def _is_wanted(self, headers: bytes) -> bool:
        if _FILENAME.search(headers):
            return False
        found = _NAME.search(headers)
        return found is not None and (found[1] or found[2]) == self._name


def _bound(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise BadRequest(f"{what} of the multipart body is longer than {limit} bytes")
