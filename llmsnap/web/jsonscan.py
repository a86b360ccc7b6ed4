"""Where the values in a JSON text begin and end, without decoding them.

Long strings cost next to nothing: they are jumped over by searching for their closing quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from llmsnap.web.body import Buffer

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_SCALAR: Final = re.compile(rb"[^\s,\]}]+")
_BRACKET_OR_QUOTE: Final = re.compile(rb'["\[\]{}]')
_KEY: Final = msgspec.json.Decoder(str)

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_OPENING, _CLOSING = b"[{", b"]}"


class NotJson(ValueError):
    """The text can't be JSON."""


@dataclass(slots=True)
class Member:
    """One value of an object or array, by positions: `lead` … `start` value `end` … `stop`.

    `lead` is the comma before it, or where the first one's surroundings begin; from `end` to `stop`
    there is only blank space.
    """

    key: str | None
    lead: int
    start: int
    end: int
    stop: int


def members(text: Buffer, start: int) -> Iterator[Member]:
    """Yield the members of the object or array that begins at `start`. Raises NotJson."""
    in_object = text[start] == ord("{")
    lead = start + 1
    at = skip_space(text, lead)
    if _byte(text, at) in _CLOSING:
        return
    while True:
        key = None
        if in_object:
            close = _string_end(text, at)
            key = _key(text[at:close])
            at = skip_space(text, close)
            _expect(text, at, ":")
            at = skip_space(text, at + 1)
        end = value_end(text, at)
        stop = skip_space(text, end)
        yield Member(key, lead, at, end, stop)
        if _byte(text, stop) in _CLOSING:
            return
        _expect(text, stop, ",")
        lead = stop
        at = skip_space(text, stop + 1)


def skip_space(text: Buffer, at: int) -> int:
    """Return where the next byte is that isn't blank."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def value_end(text: Buffer, at: int) -> int:
    """Return where the value that begins at `at` ends. Raises NotJson."""
    first = _byte(text, at)
    if first == b'"':
        return _string_end(text, at)
    if first in _OPENING:
        return _nested_end(text, at)
    found = _SCALAR.match(text, at)
    if found is None:
        raise NotJson(f"no value at byte {at}")
    return found.end()


def _string_end(text: Buffer, at: int) -> int:
    _expect(text, at, '"')
    end = text.find(b'"', at + 1)
    while end > 0 and text[end - 1] == _BACKSLASH:
        run = end - 1
        while text[run - 1] == _BACKSLASH:
            run -= 1
        if (end - run) % 2 == 0:  # the backslashes escape each other
            break
        end = text.find(b'"', end + 1)
    if end < 0:
        raise NotJson(f"the string at byte {at} has no end")
    return end + 1


def _nested_end(text: Buffer, at: int) -> int:
    depth = 0
    search = _BRACKET_OR_QUOTE.search
    while found := search(text, at):
        at = found.start()
        mark = text[at]
        if mark == _QUOTE:
            at = _string_end(text, at)
            continue
        at += 1
        if mark in _OPENING:
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return at
    raise NotJson("a bracket isn't closed")


def _key(quoted: bytes) -> str:
    if b"\\" not in quoted:
        return quoted[1:-1].decode("utf-8", "surrogateescape")
    try:
        return _KEY.decode(quoted)
    except msgspec.DecodeError as error:
        raise NotJson(str(error)) from None


def _byte(text: Buffer, at: int) -> bytes:
    return text[at : at + 1] or b"\x00"


def _expect(text: Buffer, at: int, char: str) -> None:
    if _byte(text, at) != char.encode():
        raise NotJson(f"no {char!r} at byte {at}")
