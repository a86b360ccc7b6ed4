"""Edits of JSON that leave every other byte as it is; keys are paths in the manner of sjson.

`a.b` goes into objects, `list.0` into arrays, `list.-1` appends; `\\` takes the next character as
it is, and a leading `:` makes a number a key. Edits follow each other: each sees what those before
it made of the text. The result is given out in pieces of the original, so that a large one isn't
copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from llmsnap.web.body import Buffer
from llmsnap.web.jsonscan import members, skip_space, value_end

Segment = bytes | memoryview
_Piece = tuple[Buffer, int, int]

_LAST: Final = "-1"
_MOST_NULLS: Final = 10_000
_JOINED_BYTES: Final = 64 * 1024


class CantEdit(ValueError):
    """The edit has no meaning for this text."""


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a path."""

    name: str
    is_key: bool = False
    """It names a key even where it looks like a number."""

    @property
    def index(self) -> int | None:
        """The place in an array that it means; None: none."""
        number = self.name.isascii() and self.name.isdigit() and not self.is_key
        return int(self.name) if number else None

    @property
    def is_last(self) -> bool:
        """Whether it means the end of an array."""
        return self.name == _LAST and not self.is_key


Path = tuple[Step, ...]


def parse_path(text: str) -> Path | None:
    """Read a path; None when it holds a wildcard, which means no place in particular."""
    steps = []
    name, is_key, fresh = "", False, True
    characters = iter(text)
    for char in characters:
        match char:
            case ":" if fresh:
                is_key = True
            case "*" | "?":
                return None
            case ".":
                steps.append(Step(name, is_key))
                name, is_key, fresh = "", False, True
                continue
            case "\\":
                name += next(characters, "")
            case _:
                name += char
        fresh = False
    return (*steps, Step(name, is_key))


@dataclass(slots=True)
class _Item:
    """A member of an opened object or array: what stands before it, it, what stands after it."""

    key: str | None
    before: list[_Piece]
    value: _Piece | _Opened
    after: list[_Piece]


@dataclass(slots=True)
class _Opened:
    """An object or array of which single members can be changed."""

    is_object: bool
    opening: list[_Piece]
    """The bracket, and what stands behind it when there are no members."""
    items: list[_Item]
    closing: _Piece

    def find(self, step: Step) -> list[_Item]:
        """Return the members that `step` means: several when a key stands there twice."""
        if self.is_object:
            return [item for item in self.items if item.key == step.name]
        index = step.index
        return self.items[index : index + 1] if index is not None else []

    def append(self, step: Step, value: bytes) -> None:
        """Add a member at the end; fill an array up with nulls to its place."""
        if self.is_object:
            self._add(step.name, msgspec.json.encode(step.name) + b":", value)
            return
        if step.index is None and not step.is_last:
            raise CantEdit(f"{step.name!r} is no place in an array")
        for _ in range(_missing(step, len(self.items))):
            self._add(None, b"", b"null")
        self._add(None, b"", value)

    def _add(self, key: str | None, lead: bytes, value: bytes) -> None:
        comma = b"," if self.items else b""
        self.items.append(_Item(key, [_whole(comma + lead)], _whole(value), []))

    def remove(self, item: _Item) -> None:
        """Take a member out, with the comma before it, or after it when it is the first."""
        at = next(n for n, other in enumerate(self.items) if other is item)
        del self.items[at]
        if at > 0:
            self.items[at - 1].after += item.after
        elif self.items:
            text, start, end = self.items[0].before[0]
            self.items[0].before[0] = (text, start + 1, end)
        else:
            self.opening += item.after

    def pieces(self) -> Iterator[_Piece]:
        """Yield what it is made of now, in order."""
        yield from self.opening
        for item in self.items:
            yield from item.before
            if isinstance(item.value, _Opened):
                yield from item.value.pieces()
            else:
                yield item.value
            yield from item.after
        yield self.closing


class Document:
    """A JSON text under edit. The methods raise NotJson and CantEdit."""

    def __init__(self, text: Buffer) -> None:
        start = skip_space(text, 0)
        end = value_end(text, start)
        if text[start] not in b"{[":
            raise CantEdit("only objects and arrays can be edited")
        self._before = (text, 0, start)
        self._root = _open((text, start, end))
        self._after = (text, end, len(text))

    def set(self, path: Path, value: bytes) -> None:
        """Put the JSON text `value` at `path`, making what is missing on the way.

        It has no blank space around it.
        """
        place = self._root
        for n, (step, following) in enumerate(pairwise(path), start=1):
            found = place.find(step)
            if not found:
                place.append(step, _built(path[n:], value))
                return
            place = _opened(found[-1], following)
        if not self._replace(place, path[-1], value):
            place.append(path[-1], value)

    def replace(self, path: Path, value: bytes) -> bool:
        """Put `value` at `path` if there is something; say whether there was."""
        place = self._reach(path)
        return place is not None and self._replace(place, path[-1], value)

    def delete(self, path: Path) -> None:
        """Take away what is at `path`, if anything."""
        place = self._reach(path)
        if place is None:
            return
        is_end = path[-1].is_last and not place.is_object
        for item in place.items[-1:] if is_end else place.find(path[-1]):
            place.remove(item)

    def segments(self) -> list[Segment]:
        """Return the text in pieces; in one when it is short."""
        merged: list[_Piece] = []
        for text, start, end in (self._before, *self._root.pieces(), self._after):
            if merged and merged[-1][0] is text and merged[-1][2] == start:
                merged[-1] = (text, merged[-1][1], end)
            elif end > start:
                merged.append((text, start, end))
        if sum(end - start for _, start, end in merged) <= _JOINED_BYTES:
            return [b"".join(text[start:end] for text, start, end in merged)]
        return [memoryview(text)[start:end] for text, start, end in merged]

    def _reach(self, path: Path) -> _Opened | None:
        """Return what holds the last step of `path`; None when it isn't there."""
        place = self._root
        for step in path[:-1]:
            found = place.find(step)
            if not found or not _is_container(found[-1]):
                return None
            place = _opened(found[-1], None)
        return place

    @staticmethod
    def _replace(place: _Opened, step: Step, value: bytes) -> bool:
        found = place.find(step)
        for item in found:  # all of them: parsers differ in which of two equal keys they take
            item.value = _whole(value)
        return bool(found)


def _whole(text: bytes) -> _Piece:
    return (text, 0, len(text))


def _is_container(item: _Item) -> bool:
    if isinstance(item.value, _Opened):
        return True
    text, start, _ = item.value
    return text[start] in b"{["


def _opened(item: _Item, following: Step | None) -> _Opened:
    """Open the value of `item`; what is no container gives way to one for the step `following`."""
    if not isinstance(item.value, _Opened):
        if not _is_container(item):
            is_array = following is not None and (following.index is not None or following.is_last)
            item.value = _whole(b"[]" if is_array else b"{}")
        item.value = _open(item.value)
    return item.value


def _open(piece: _Piece) -> _Opened:
    text, start, end = piece
    items = [
        _Item(
            member.key,
            [(text, member.lead, member.start)],
            (text, member.start, member.end),
            [(text, member.end, member.stop)],
        )
        for member in members(text, start)
    ]
    behind = start + 1 if items else end - 1
    return _Opened(text[start] == ord("{"), [(text, start, behind)], items, (text, end - 1, end))


def _built(path: Path, value: bytes) -> bytes:
    """Return the JSON text that holds `value` at `path` and nothing else."""
    for step in reversed(path):
        if step.index is not None or step.is_last:
            value = b"[" + b"null," * _missing(step, 0) + value + b"]"
        else:
            value = b"{" + msgspec.json.encode(step.name) + b":" + value + b"}"
    return value


def _missing(step: Step, size: int) -> int:
    """Return how many nulls an array of `size` needs before `step` can be appended."""
    missing = step.index - size if step.index is not None else 0
    if missing > _MOST_NULLS:
        raise CantEdit(f"{step.name} is far beyond the end of the array")
    return missing
