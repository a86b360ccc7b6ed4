"""GGUF files of any shape that take no room: their weights are holes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from llmsnap.memory.ggml_types import TYPES

_NUMBERS: Final = {kind.name: number for number, kind in TYPES.items()}
_ALIGNMENT: Final = 32


def text(value: str) -> bytes:
    """Return `value` as GGUF writes it."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def typed(value: Any) -> bytes:
    """Return `value` after the number of its type; lists are of texts, whole numbers or truths."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + text(value)
        case [bool(), *_]:
            return struct.pack(f"<IIQ{len(value)}?", 9, 7, len(value), *value)
        case [int(), *_]:
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))


def head(
    values: Mapping[str, Any],
    tensors: Sequence[tuple[str, tuple[int, ...], str]] = (),
    *,
    version: int = 3,
) -> tuple[bytes, int]:
    """Return a header, padded, and how many bytes of weights go with it."""
    data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    data += b"".join(text(key) + typed(value) for key, value in values.items())
    offset = 0
    for name, shape, kind in tensors:
        data += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        data += struct.pack("<IQ", _NUMBERS[kind], offset)
        size = TYPES[_NUMBERS[kind]].row_bytes(shape[0])
        for length in shape[1:]:
            size *= length
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    return data + b"\0" * (-len(data) % _ALIGNMENT), offset


def write_gguf(
    path: Path,
    values: Mapping[str, Any],
    tensors: Sequence[tuple[str, tuple[int, ...], str]] = (),
    **options: Any,
) -> Path:
    """Write a file with this header, whose weights are a hole; return `path`."""
    data, weights = head(values, tensors, **options)
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + weights)
    return path


def llama(
    *,
    architecture: str = "llama",
    layers: int = 4,
    embedding: int = 256,
    forward: int = 1024,
    heads: int = 8,
    heads_kv: int | list[int] = 4,
    context: int = 8192,
    tokens: int = 100,
    **more: Any,
) -> dict[str, Any]:
    """Return the metadata of a model; `more` is below its architecture, with `__` for a dot."""
    named = {
        "block_count": layers,
        "embedding_length": embedding,
        "feed_forward_length": forward,
        "attention.head_count": heads,
        "attention.head_count_kv": heads_kv,
        "context_length": context,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return {
        "general.architecture": architecture,
        **{f"{architecture}.{name}": value for name, value in named.items()},
        "tokenizer.ggml.tokens": ["x"] * tokens,
    }


def blocks(
    layers: int, *, kind: str = "F16", width: int = 256, experts: int = 0, tied: bool = False
) -> list[tuple[str, tuple[int, ...], str]]:
    """Return the tensors of a model whose every matrix is `width` wide and high."""
    square = (width, width)
    found: list[tuple[str, tuple[int, ...], str]] = [("token_embd.weight", square, kind)]
    for layer in range(layers):
        found += [
            (f"blk.{layer}.attn_norm.weight", (width,), "F32"),
            (f"blk.{layer}.attn_q.weight", square, kind),
            (f"blk.{layer}.ffn_up.weight", square, kind),
        ]
        if experts:
            found.append((f"blk.{layer}.ffn_up_exps.weight", (*square, experts), kind))
    found.append(("output_norm.weight", (width,), "F32"))
    return found if tied else [*found, ("output.weight", square, kind)]
