"""What the weights of a model take, device by device."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from llmsnap.config.memory import HOST
from llmsnap.memory.gguf_header import Header, Tensor
from llmsnap.memory.layout import Layout
from llmsnap.memory.llama_flags import Flags

_EMBEDDINGS: Final = "token_embd.weight"
_OUTPUT: Final = "output.weight"

_REPACKED: Final = {
    "avx2": ("Q4_0", "Q4_K", "IQ4_NL", "MXFP4"),
    "avx512f": ("Q2_K",),
    "amx_int8": ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"),
    "asimddp": ("Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q8_0", "Q1_0"),
}
"""The types that llama.cpp lays out anew for a processor with this ability, in a second copy.

After ggml/src/ggml-cpu/{repack.cpp,amx/common.h}.
"""
_EIGHT_ROWS: Final = 8
_MATRIX: Final = 2


@cache
def repacked_types() -> frozenset[str]:
    """Return the types of which this machine's processor gets a second copy."""
    if platform.machine() == "arm64":  # macOS: there is no /proc
        return repacked_by({"asimddp"})
    try:
        return repacked_by(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return repacked_by({"avx2"})


def repacked_by(abilities: Iterable[str]) -> frozenset[str]:
    """Return the same for a processor with these abilities, as Linux calls them."""
    return frozenset(kind for ability in set(abilities) for kind in _REPACKED.get(ability, ()))


def weights_of(
    headers: Sequence[Header], flags: Flags, layout: Layout, repacked: Collection[str]
) -> tuple[Mapping[str, int], int]:
    """Return the bytes a device, and how many of those in RAM `--no-mmap` would save.

    On the processor alone a mapped file counts from the first tensor that is used in place to the
    last one: those between them that are laid out anew, in a second copy, stay mapped as well.
    With a GPU what lies between them is mapped, too, but nobody reads it again.
    """
    # With a GPU llama.cpp prefers memory that the GPU can read, and lays out nothing anew.
    repacked = repacked if flags.repack and not layout.gpus else ()
    needs = Counter(_second_output(headers, layout, repacked))
    saved = 0
    for header in headers:
        mappable: list[Tensor] = []
        for tensor in header.tensors:
            device = layout.device_of(tensor)
            if device == HOST and not _is_repacked(tensor, repacked):
                mappable.append(tensor)
            else:
                needs[device] += tensor.size_bytes
        read = sum(tensor.size_bytes for tensor in mappable)
        held = _span(mappable) if flags.mmap and not layout.gpus else read
        needs[HOST] += held
        saved += held - read
    return needs, saved


def _second_output(
    headers: Sequence[Header], layout: Layout, repacked: Collection[str]
) -> Mapping[str, int]:
    """Return what embeddings that serve as output too need there, besides where they lie."""
    tensors = {tensor.name: tensor for header in headers for tensor in header.tensors}
    embeddings = tensors.get(_EMBEDDINGS)
    if embeddings is None or _OUTPUT in tensors:
        return {}
    elsewhere = layout.output != HOST or embeddings.type_name in repacked
    return {layout.output: embeddings.size_bytes} if elsewhere else {}


def _is_repacked(tensor: Tensor, repacked: Collection[str]) -> bool:
    """Whether `tensor` is laid out anew: rows that are looked up, as embeddings, aren't."""
    return (
        tensor.type_name in repacked
        and len(tensor.shape) >= _MATRIX
        and tensor.shape[1] % _EIGHT_ROWS == 0
        and not tensor.name.startswith(("token_embd", "per_layer_token_embd"))
    )


def _span(tensors: Sequence[Tensor]) -> int:
    if not tensors:
        return 0
    return max(t.offset + t.size_bytes for t in tensors) - min(t.offset for t in tensors)
