"""What a llama-server takes for computing, and for being there at all.

The sums are those of llama.cpp's own graph allocator for the widest places of a layer; the
constants were measured: see docs/memory.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from llmsnap.config.memory import HOST
from llmsnap.memory.kv_cache import Context
from llmsnap.memory.layout import Layout
from llmsnap.memory.llama_flags import Flags
from llmsnap.memory.model_shape import Shape

_MIB: Final = 1024**2
_WHOLE_TYPES: Final = frozenset({"f16", "bf16", "f32"})
_FLOAT_BYTES: Final = 4
_HALF_BYTES: Final = 2
_RESIDUALS: Final = 5
"""Copies of a token's embedding that are alive beside the feed-forward layer."""
_ATTENTION_RESIDUALS: Final = 7
"""The same beside the attention, when it is computed in the open."""
_ROTATED_RESIDUALS: Final = 2
"""More of them with a cache of fewer bits, whose keys and values are rotated before."""
_RECURRENT_RESIDUALS: Final = 16
"""More of them beside recurrent layers; a guess."""

_PROCESS_BYTES: Final = 29 * _MIB
_PYTHON_BYTES: Final = 4 * _MIB
"""More, inside Python."""
_TOKEN_BYTES: Final = 240
_MERGE_BYTES: Final = 280
_CELL_BYTES: Final = 512
"""Of each token in a context, beside its keys and values: where it stands, and the prompt."""
_GPU_PROCESS_BYTES: Final = 256 * _MIB
"""More of RAM, with a GPU's libraries and context."""
_GPU_CONTEXT_BYTES: Final = 512 * _MIB
"""Of each GPU, before anything is on it."""


def compute_of(flags: Flags, shape: Shape, layout: Layout, context: Context) -> Mapping[str, int]:
    """Return the bytes a device."""
    masks = _mask_bytes(flags, shape, context)
    buffer = masks + _graph_bytes(flags, shape, context)
    outputs = flags.parallel * shape.vocabulary * _FLOAT_BYTES
    needs = Counter(dict.fromkeys(layout.gpus, buffer + outputs))
    needs[HOST] = outputs
    if HOST in layout.layers:
        needs[HOST] += buffer + outputs + _work_bytes(flags, shape, context)
    else:
        needs[HOST] += masks + context.batch * shape.embedding * _FLOAT_BYTES
    return needs


def overhead_of(flags: Flags, shape: Shape, layout: Layout, context: Context) -> Mapping[str, int]:
    """Return the bytes a device of the process itself, its vocabulary and its lists of tokens."""
    needs = Counter(dict.fromkeys(layout.gpus, _GPU_CONTEXT_BYTES))
    needs[HOST] = _PROCESS_BYTES + shape.vocabulary * _TOKEN_BYTES + shape.merges * _MERGE_BYTES
    needs[HOST] += context.cells * context.streams * _CELL_BYTES
    if flags.in_python:
        needs[HOST] += _PYTHON_BYTES
    if layout.gpus:
        needs[HOST] += _GPU_PROCESS_BYTES
    return needs


def _mask_bytes(flags: Flags, shape: Shape, context: Context) -> int:
    cells = context.cells
    if any(layer.windowed for layer in shape.layers):
        cells += context.window_cells
    if not any(layer.k_width for layer in shape.layers):
        cells = 0
    return cells * context.batch * (_HALF_BYTES if flags.flash else _FLOAT_BYTES)


def _graph_bytes(flags: Flags, shape: Shape, context: Context) -> int:
    residuals = 0 if {flags.type_k, flags.type_v} <= _WHOLE_TYPES else _ROTATED_RESIDUALS
    residuals += 0 if shape.is_plain else _RECURRENT_RESIDUALS
    forward = shape.widest + _RESIDUALS * shape.embedding
    scores = 0 if flags.flash else shape.heads * context.cells
    attention = scores + _ATTENTION_RESIDUALS * shape.embedding if scores else 0
    widest = max(forward, attention) + residuals * shape.embedding
    return context.batch * _FLOAT_BYTES * widest


def _work_bytes(flags: Flags, shape: Shape, context: Context) -> int:
    """Return what the threads of the processor use: what they multiply with, in half precision.

    The scores of open attention grow with the conversation, and leave gaps in the heap behind.
    """
    width = max(shape.widest // 3, shape.embedding)
    scores = 0 if flags.flash else shape.heads * context.cells * 3 // 2
    return context.batch * _HALF_BYTES * max(width, scores)
