"""What a model's state takes: the KV cache, and the state of recurrent layers.

After llama-kv-cache.cpp, llama-kv-cache-iswa.cpp and llama-memory-recurrent.cpp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from llmsnap.config.memory import HOST
from llmsnap.memory.ggml_types import TensorType, type_named
from llmsnap.memory.layout import Layout
from llmsnap.memory.llama_flags import Flags
from llmsnap.memory.model_shape import Layer, Shape

_CELLS: Final = 256
"""Contexts are rounded up to whole ones of so many tokens."""
_FLOAT_BYTES: Final = 4
_F16: Final = TensorType("F16", 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """How many tokens there is room for."""

    cells: int
    """Of one stream."""
    window_cells: int
    """Of one stream, in the layers with a window."""
    streams: int
    batch: int
    """Tokens that are computed at once."""


def context_for(flags: Flags, shape: Shape) -> Context:
    """Return what llama-server makes of `-c`, `-np` and the like for this model."""
    total = _padded(flags.context or shape.context or _CELLS)
    batch = min(total, flags.batch, flags.ubatch)
    streams = 1 if flags.unified else flags.parallel
    cells = total if flags.unified else _padded(total // flags.parallel)
    window = shape.window * (flags.parallel if flags.unified else 1) + batch
    window_cells = cells if flags.swa_full else _padded(min(cells, window))
    return Context(cells=cells, window_cells=window_cells, streams=streams, batch=batch)


def cache_of(flags: Flags, shape: Shape, layout: Layout, context: Context) -> Mapping[str, int]:
    """Return the bytes a device."""
    needs: Counter[str] = Counter()
    for layer, device in zip(shape.layers, layout.layers, strict=False):
        cells = context.window_cells if layer.windowed else context.cells
        size = cells * context.streams * _token_bytes(flags, layer)
        size += layer.state * _FLOAT_BYTES * flags.parallel
        needs[device if flags.kv_offload else HOST] += size
    return needs


def swa_full_bytes(flags: Flags, shape: Shape, layout: Layout) -> int | None:
    """Return how many bytes `--swa-full` would add; None: it is there, or no layer has a window."""
    if flags.swa_full or not any(layer.windowed for layer in shape.layers):
        return None
    full = replace(flags, swa_full=True)
    more, now = (cache_of(how, shape, layout, context_for(how, shape)) for how in (full, flags))
    return sum(more.values()) - sum(now.values())


def checkpoint_bytes(flags: Flags, shape: Shape) -> int:
    """Return the size of one copy that llama-server keeps of a slot's state, in RAM.

    0 for a model that can go back to any place of its cache without one.
    """
    if flags.pooled:
        return 0
    size = sum(layer.state * _FLOAT_BYTES for layer in shape.layers)
    if not flags.swa_full:
        per_token = sum(_token_bytes(flags, layer) for layer in shape.layers if layer.windowed)
        size += shape.window * per_token
    return size


def _token_bytes(flags: Flags, layer: Layer) -> int:
    return _row_bytes(flags.type_k, layer.k_width) + _row_bytes(flags.type_v, layer.v_width)


def _row_bytes(name: str, width: int) -> int:
    return (type_named(name) or _F16).row_bytes(width) if width else 0


def _padded(tokens: int) -> int:
    return -(-max(tokens, 1) // _CELLS) * _CELLS
