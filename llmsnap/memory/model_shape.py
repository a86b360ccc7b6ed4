"""What a model's metadata says of its layers, as far as memory is concerned.

After `load_arch_hparams` of each architecture and llama-hparams.cpp in llama.cpp (October 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llmsnap.errors import ModelFileError
from llmsnap.memory.gguf_header import Header

_MOST_LAYERS: Final = 1024

_WITHOUT_CACHE: Final = frozenset(
    {
        *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert"),
        *("jina-bert-v2", "jina-bert-v3", "gemma-embedding", "t5encoder"),
        *("dream", "llada", "llada-moe", "rnd1"),
    }
)
_RECURRENT: Final = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_EVERY_FOURTH_ATTENDS: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})
_NOTHING_BUT_FORWARD: Final = frozenset({"nemotron_h", "nemotron_h_moe"})
"""Layers that feed forward do nothing else there."""
_BOTH_IN_ALL: Final = frozenset({"falcon-h1"})
_WINDOW_PERIODS: Final = {
    "afmoe": 4,
    "cohere2": 4,
    "exaone-moe": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "llama4": 4,
    "mellum": 4,
    "muse-glimmer": 4,
    "olmo2": 4,
    "plamo3": 8,
    "cohere2moe": -4,
    "laguna": -4,
    "smallthinker": -4,
}
"""Of so many layers all but one have a window: the last one, or the first one (negative)."""
_WINDOWS: Final = {"llama4": 8192}
"""Where the file needn't say it."""
_NO_WINDOWS_DESPITE: Final = frozenset({"phi3"})
_ONLY_LARGE_HAVE_WINDOWS: Final = {"exaone4": 64}
"""Of these only the model with so many layers has windows."""
_CACHED_FROM_START: Final = {"gemma3n": 20}
"""So many layers have a cache, the others use it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer's state, in values."""

    k_width: int = 0
    """Of keys, a token; 0: it doesn't attend, or uses another layer's cache."""
    v_width: int = 0
    windowed: bool = False
    state: int = 0
    """Of the recurrent state, a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What counts of a model."""

    architecture: str
    layers: tuple[Layer, ...]
    context: int
    """That it was trained with, in tokens."""
    window: int
    """Of the layers that have one, in tokens."""
    embedding: int
    heads: int
    """Of the layer with the most."""
    widest: int
    """Values a token, of what a feed-forward layer holds at once."""
    vocabulary: int
    merges: int

    @property
    def is_plain(self) -> bool:
        """Whether nothing in it is recurrent."""
        return not any(layer.state for layer in self.layers)


def shape_of(header: Header) -> Shape:
    """Return the shape of the model that `header` describes.

    Raises ModelFileError when it describes none, as that of an image projector.
    """
    embedding = header.number("embedding_length") or 0
    count = header.number("block_count") or 0
    if not header.architecture or not embedding or not 0 < count <= _MOST_LAYERS:
        raise ModelFileError("holds no language model: it tells of no layers")
    heads = _each(header, "attention.head_count", count, 0)
    return Shape(
        architecture=header.architecture,
        layers=_layers(header, count, heads),
        context=header.number("context_length") or 0,
        window=_window(header),
        embedding=embedding,
        heads=max(heads),
        widest=_widest(header, count, embedding),
        vocabulary=header.lengths.get("tokenizer.ggml.tokens") or header.number("vocab_size") or 0,
        merges=header.lengths.get("tokenizer.ggml.merges", 0),
    )


def _layers(header: Header, count: int, heads: Sequence[int]) -> tuple[Layer, ...]:
    heads_kv = _each(header, "attention.head_count_kv", count, heads)
    windowed = _windowed(header, count)
    attends = _attends(header, count, heads_kv)
    recurs = _recurs(header, attends)
    state = _state_values(header, max(heads))
    cached = _cached_layers(header, count)
    return tuple(
        Layer(
            k_width=widths[0],
            v_width=widths[1],
            windowed=windowed[i],
            state=state if recurs[i] else 0,
        )
        for i in range(count)
        for widths in [
            _widths(header, heads_kv[i], heads[i], windowed[i])
            if attends[i] and i < cached
            else (0, 0)
        ]
    )


def _widths(header: Header, heads_kv: int, heads: int, windowed: bool) -> tuple[int, int]:
    """Return how wide keys and values of one token are in a layer."""
    default = (header.number("embedding_length") or 0) // max(1, heads)
    key = header.number("attention.key_length") or default
    value = header.number("attention.value_length") or default
    if windowed:
        key = header.number("attention.key_length_swa") or key
        value = header.number("attention.value_length_swa") or value
    if header.number("attention.key_length_mla"):  # keys and values are one, compressed
        value = 0
    indexer = header.number("attention.indexer.key_length") or 0
    return heads_kv * key + indexer, heads_kv * value


def _windowed(header: Header, count: int) -> tuple[bool, ...]:
    architecture = header.architecture
    none = architecture in _NO_WINDOWS_DESPITE
    none |= _ONLY_LARGE_HAVE_WINDOWS.get(architecture, count) != count
    if none or not _window(header):
        return (False,) * count
    pattern = header.numbers("attention.sliding_window_pattern") or ()
    if len(pattern) >= count:
        return tuple(map(bool, pattern[:count]))
    period = _WINDOW_PERIODS.get(architecture, 1)
    if pattern:
        period = pattern[0] if period > 0 else -pattern[0]
    full_at = 0 if period < 0 else period - 1
    return tuple(layer % abs(period or 1) != full_at for layer in range(count))


def _window(header: Header) -> int:
    said = header.number("attention.sliding_window")
    if said is None:
        return _WINDOWS.get(header.architecture, 0)
    return _WINDOWS.get(header.architecture, said) if said else 0


def _attends(header: Header, count: int, heads_kv: Sequence[int]) -> tuple[bool, ...]:
    architecture = header.architecture
    if architecture in _RECURRENT or architecture in _WITHOUT_CACHE:
        return (False,) * count
    if architecture in _EVERY_FOURTH_ATTENDS:
        recurrent = header.numbers("attention.recurrent_layers") or ()
        if len(recurrent) >= count:
            return tuple(not recurs for recurs in recurrent[:count])
        interval = header.number("full_attention_interval") or 4
        return tuple((layer + 1) % interval == 0 for layer in range(count))
    return tuple(heads > 0 for heads in heads_kv)


def _recurs(header: Header, attends: Sequence[bool]) -> tuple[bool, ...]:
    """Return which layers have a recurrent state; too many rather than too few."""
    if header.architecture in _BOTH_IN_ALL:
        return (True,) * len(attends)
    if header.architecture in _WITHOUT_CACHE:
        return (False,) * len(attends)
    forward = _each(header, "feed_forward_length", len(attends), 0)
    alone = header.architecture in _NOTHING_BUT_FORWARD
    return tuple(
        not attending and not (alone and width)
        for attending, width in zip(attends, forward, strict=True)
    )


def _state_values(header: Header, heads: int) -> int:
    """Return the values of one recurrent layer's state: of its convolution and of its own."""
    embedding = header.number("embedding_length") or 0
    wkv = header.number("wkv.head_size") or 0
    if wkv:
        return embedding * ((header.number("token_shift_count") or 2) + wkv)
    kda = header.number("kda.head_dim") or 0
    kernel = header.number("ssm.conv_kernel") or 0
    if kda:
        return heads * kda * (3 * max(kernel - 1, 3) + kda)
    short = header.number("shortconv.l_cache") or 0
    if short:
        return embedding * (short - 1)
    inner, state = header.number("ssm.inner_size") or 0, header.number("ssm.state_size") or 0
    groups = header.number("ssm.group_count") or 0
    return max(kernel - 1, 0) * (inner + 2 * groups * state) + state * inner


def _cached_layers(header: Header, count: int) -> int:
    shared = header.number("attention.shared_kv_layers")
    if shared is not None:
        return max(0, count - shared)
    return _CACHED_FROM_START.get(header.architecture, count)


def _widest(header: Header, count: int, embedding: int) -> int:
    """Return the values a token in the widest place: gate, up and their product, or experts'."""
    dense = 3 * max(_each(header, "feed_forward_length", count, 0))
    used = max(_each(header, "expert_used_count", count, 0))
    if not used:
        return dense
    width = max(_each(header, "expert_feed_forward_length", count, 0)) or dense // 3
    shared = header.number("expert_shared_feed_forward_length") or width * (
        header.number("expert_shared_count") or 0
    )
    return max(dense, used * (3 * width + embedding) + 3 * shared)


def _each(header: Header, name: str, count: int, default: int | Sequence[int]) -> tuple[int, ...]:
    """Return the number that each of `count` layers has under `name`."""
    found = header.numbers(name)
    if found is None:
        return (default,) * count if isinstance(default, int) else tuple(default)
    if len(found) < count:
        found += (found[-1] if found else 0,) * (count - len(found))
    return tuple(max(0, number) for number in found[:count])
