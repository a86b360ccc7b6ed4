"""Reads the header of a GGUF file: what the model is made of, not its weights.

The `gguf` package reads the same, but needs numpy, 0.7 GiB and seconds for a large vocabulary.
Nothing here trusts the file: it may be cut off, damaged or made to do harm.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import BinaryIO, Final

from llmsnap.errors import ModelFileCutOff, ModelFileError
from llmsnap.memory.ggml_types import TYPES

Value = int | float | bool | str | tuple[int | float | bool, ...]

LARGEST_HEADER_BYTES: Final = 64 * 1024**2
"""The largest vocabularies of today make 20 MiB."""
_MOST_TENSORS: Final = 1 << 16
"""Models with single experts have 45,000, others a few hundred."""
_MOST_KEYS: Final = 4096
_LONGEST_LIST: Final = 1024
"""Lists a layer are kept, those a token aren't."""
_LONGEST_TEXT: Final = 4096
_LONGEST_KEY: Final = 65535
_LONGEST_NAME: Final = 255
_LONGEST_SHOWN: Final = 80
_MOST_DIMENSIONS: Final = 4
_FIRST_BYTES: Final = 1024**2
_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS: Final = {
    kind: struct.Struct(f"<{code}")
    for kind, code in zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor, without its values."""

    name: str
    shape: tuple[int, ...]
    """The length of a row comes first."""
    type_name: str
    """Empty: a type that isn't known here."""
    offset: int
    """From the beginning of the file."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What one file says of itself."""

    values: Mapping[str, Value]
    """By key, without long texts and long lists."""
    lengths: Mapping[str, int]
    """Of every list, by key."""
    tensors: tuple[Tensor, ...]

    @property
    def architecture(self) -> str:
        """The prefix of the keys that describe the model; empty: it is no language model."""
        return self.text("general.architecture")

    def text(self, key: str) -> str:
        """Return the text under `key`; empty when there is none."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int | None:
        """Return the whole number that the architecture has under `name`."""
        value = self.values.get(f"{self.architecture}.{name}")
        return value if isinstance(value, int) else None

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Return the numbers that it has under `name`, one a layer; one for all comes alone."""
        value = self.values.get(f"{self.architecture}.{name}")
        if isinstance(value, int):
            return (int(value),)
        return tuple(map(int, value)) if isinstance(value, tuple) else None


def read_header(path: Path) -> Header:
    """Return the header of the file at `path`.

    Raises ModelFileError for what is no GGUF file, or a damaged one, ModelFileCutOff, and OSError.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        try:
            return _Reader(file, size).header()
        except ModelFileError as error:
            raise type(error)(f"{str(path)!r} {error}") from None


class _Reader:
    """Goes through the header from its beginning; reads more of the file as it needs it."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._held = b""
        self._at = 0

    def header(self) -> Header:
        """Return the header; raise ModelFileError with what is wrong, without the file's name."""
        self._begin()
        tensor_count = self._count("tensors", _MOST_TENSORS)
        values: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(self._count("keys", _MOST_KEYS)):
            self._pair(values, lengths)
        infos = [self._tensor_info() for _ in range(tensor_count)]
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            raise ModelFileError(f"is damaged: its alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        return Header(values=values, lengths=lengths, tensors=self._placed(infos, start))

    def _begin(self) -> None:
        magic = self._take(4)
        version = self._number("<I")
        if magic != _MAGIC:
            raise ModelFileError("is no GGUF file")
        if version not in _VERSIONS:
            big = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
            which = "is for big-endian machines" if big else f"has version {version}"
            raise ModelFileError(f"{which}; convert it anew with llama.cpp's tools")

    def _pair(self, values: dict[str, Value], lengths: dict[str, int]) -> None:
        key, kind = self._text(_LONGEST_KEY), self._number("<I")
        if kind == _ARRAY:
            item_kind, length = self._number("<I"), self._number("<Q")
            lengths[key] = length
            items = self._list(item_kind, length, key)
            if items is not None:
                values[key] = items
        elif kind == _STRING:
            length = self._number("<Q")
            text = self._take(length)
            if length <= _LONGEST_TEXT:
                values[key] = text.decode(errors="replace")
        else:
            values[key] = self._scalar(self._layout(kind, key))

    def _list(self, kind: int, length: int, key: str) -> tuple[int | float | bool, ...] | None:
        if kind == _STRING:
            self._skip_texts(length, key)
            return None
        layout = self._layout(kind, key)
        data = self._take(length * layout.size)
        if length > _LONGEST_LIST:
            return None
        return tuple(value for (value,) in layout.iter_unpack(data))

    def _skip_texts(self, count: int, key: str) -> None:
        """Go past `count` texts: a vocabulary has some 100,000, so that each step counts."""
        if count > LARGEST_HEADER_BYTES // 8:
            raise ModelFileError(f"is damaged: {_shown(key)} is said to have {count} items")
        unpack: Callable[[bytes, int], tuple[int]] = struct.Struct("<Q").unpack_from
        while count:
            held, at, end = self._held, self._at, len(self._held) - 8
            while count and at <= end:
                (length,) = unpack(held, at)
                at += 8 + length
                count -= 1
            self._at = at
            self._reach(at + 8 * bool(count))

    def _tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._text(_LONGEST_NAME), self._number("<I")
        if dimensions > _MOST_DIMENSIONS:
            raise ModelFileError(f"is damaged: tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self._number("<Q") for _ in range(dimensions))
        return name, shape, self._number("<I"), self._number("<Q")

    def _placed(
        self, infos: list[tuple[str, tuple[int, ...], int, int]], start: int
    ) -> tuple[Tensor, ...]:
        """Return the tensors; where a type isn't known, the next one's place tells the size."""
        ends = sorted({start + offset for *_, offset in infos} | {self._size})
        following = dict(pairwise(ends))
        tensors = []
        for name, shape, number, offset in infos:
            kind, at = TYPES.get(number), start + offset
            if kind is None:
                size = max(0, following.get(at, at) - at)
            else:
                size = kind.row_bytes(shape[0] if shape else 1) * prod(shape[1:])
            if at + size > self._size:
                raise ModelFileCutOff(
                    f"is cut off: tensor {name!r} ends at byte {at + size} of {self._size}; "
                    "fetch the file again"
                )
            type_name = kind.name if kind else ""
            tensors.append(
                Tensor(name=name, shape=shape, type_name=type_name, offset=at, size_bytes=size)
            )
        return tuple(tensors)

    # ---- pieces ----------------------------------------------------------------------------------

    def _count(self, of: str, most: int) -> int:
        count = self._number("<Q")
        if count > most:
            raise ModelFileError(f"is damaged: it is said to have {count} {of}")
        return count

    def _layout(self, kind: int, key: str) -> struct.Struct:
        if kind not in _SCALARS:
            raise ModelFileError(
                f"is damaged: {_shown(key)} has a value of the unknown type {kind}"
            )
        return _SCALARS[kind]

    def _scalar(self, layout: struct.Struct) -> int | float | bool:
        value: int | float | bool = layout.unpack(self._take(layout.size))[0]
        return value

    def _number(self, layout: str) -> int:
        value: int = struct.unpack(layout, self._take(struct.calcsize(layout)))[0]
        return value

    def _text(self, longest: int) -> str:
        length = self._number("<Q")
        if length > longest:
            raise ModelFileError(f"is damaged: a name in it has {length} bytes")
        return self._take(length).decode(errors="replace")

    def _take(self, length: int) -> bytes:
        end = self._at + length
        self._reach(end)
        piece = self._held[self._at : end]
        self._at = end
        return piece

    def _reach(self, end: int) -> None:
        """Have the file in memory up to `end`."""
        if end <= len(self._held):
            return
        if end > self._size:
            raise ModelFileCutOff("is cut off within its header; fetch the file again")
        if end > LARGEST_HEADER_BYTES:
            raise ModelFileError(f"is damaged: its header is larger than {LARGEST_HEADER_BYTES}")
        wanted = min(max(end, 2 * len(self._held), _FIRST_BYTES), self._size, LARGEST_HEADER_BYTES)
        self._held += self._file.read(wanted - len(self._held))
        if end > len(self._held):
            raise ModelFileError("became shorter while it was read")


def _shown(key: str) -> str:
    """Return `key` fit for a message: it may be of any length."""
    return repr(key[:_LONGEST_SHOWN])
