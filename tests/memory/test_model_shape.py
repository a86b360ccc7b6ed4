"""What a model's metadata says of its layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmsnap.errors import ModelFileError
from llmsnap.memory.gguf_header import read_header
from llmsnap.memory.model_shape import Shape, shape_of
from tests.memory.gguf_files import llama, write_gguf


def shape(folder: Path, **metadata: Any) -> Shape:
    """Return the shape of a model with this metadata."""
    return shape_of(read_header(write_gguf(folder / "m.gguf", llama(**metadata))))


def windowed(found: Shape) -> str:
    """Return a letter a layer: w for a window, f for the full context."""
    return "".join("w" if layer.windowed else "f" for layer in found.layers)


def test_a_plain_model(tmp_path: Path) -> None:
    """Every layer keeps keys and values of all its heads for them."""
    found = shape(tmp_path, embedding=256, heads=8, heads_kv=2, forward=1000, tokens=7)

    assert {(layer.k_width, layer.v_width, layer.state) for layer in found.layers} == {(64, 64, 0)}
    assert (found.widest, found.vocabulary, found.is_plain) == (3000, 7, True)


@pytest.mark.parametrize(
    ("architecture", "more", "expected"),
    [
        ("gemma3", {"layers": 8}, "wwwwwfww"),
        ("gemma2", {"layers": 4}, "wfwf"),
        ("gpt-oss", {"layers": 4}, "wfwf"),
        ("smallthinker", {"layers": 5}, "fwwwf"),
        ("gemma4", {"attention__sliding_window_pattern": [True, False, True, True]}, "wfww"),
        ("cohere2", {"attention__sliding_window_pattern": 2}, "wfwf"),
        ("phi3", {}, "ffff"),
        ("exaone4", {}, "ffff"),
        ("one-of-tomorrow", {}, "ffff"),
    ],
)
def test_sliding_windows(
    tmp_path: Path, architecture: str, more: dict[str, Any], expected: str
) -> None:
    """By the pattern in the file, or by what llama.cpp knows; else all layers are full."""
    found = shape(tmp_path, architecture=architecture, attention__sliding_window=512, **more)

    assert windowed(found) == expected


def test_compressed_keys_need_no_values(tmp_path: Path) -> None:
    """Multi-head latent attention, as DeepSeek's."""
    found = shape(
        tmp_path,
        architecture="deepseek2",
        heads_kv=1,
        attention__key_length=576,
        attention__value_length=512,
        attention__key_length_mla=192,
    )

    assert {(layer.k_width, layer.v_width) for layer in found.layers} == {(576, 0)}


def test_layers_that_use_another_one_s_cache(tmp_path: Path) -> None:
    """The last ones, of Gemma's newer models."""
    found = shape(tmp_path, architecture="gemma4", attention__shared_kv_layers=3)

    assert [layer.k_width > 0 for layer in found.layers] == [True, False, False, False]


def test_hybrids_attend_in_some_layers_and_have_a_state_in_the_others(tmp_path: Path) -> None:
    """One of four attends here."""
    found = shape(
        tmp_path,
        architecture="qwen3next",
        ssm__conv_kernel=4,
        ssm__inner_size=512,
        ssm__state_size=128,
        ssm__group_count=2,
    )

    assert [layer.k_width > 0 for layer in found.layers] == [False, False, False, True]
    assert [layer.state for layer in found.layers] == [3 * (512 + 2 * 2 * 128) + 128 * 512] * 3 + [
        0
    ]
    assert not found.is_plain


def test_heads_a_layer_say_which_layers_recur(tmp_path: Path) -> None:
    """No heads for keys, no attention."""
    found = shape(
        tmp_path, architecture="lfm2", heads_kv=[0, 4, 0, 4], shortconv__l_cache=3, embedding=256
    )

    assert [(layer.k_width, layer.state) for layer in found.layers] == [(0, 512), (128, 0)] * 2


def test_experts_are_as_wide_as_those_that_are_used(tmp_path: Path) -> None:
    """Not as all there are."""
    found = shape(
        tmp_path,
        architecture="qwen3moe",
        forward=100,
        expert_count=64,
        expert_used_count=8,
        expert_feed_forward_length=50,
    )

    assert found.widest == 8 * (3 * 50 + 256)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"general.architecture": "clip"},
        {"general.architecture": "llama", "llama.embedding_length": 5},
        llama(layers=1 << 30),
        {**llama(), "general.architecture": 7},
    ],
    ids=["nothing", "projector", "no layers", "too many", "a number"],
)
def test_what_is_no_language_model_is_said_to_be_none(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    """Rather than estimated."""
    with pytest.raises(ModelFileError, match="no language model"):
        shape_of(read_header(write_gguf(tmp_path / "m.gguf", values)))


def test_odd_numbers_do_no_harm(tmp_path: Path) -> None:
    """No heads at all, a window without layers, negative lengths."""
    found = shape(tmp_path, heads=0, heads_kv=[-3, 5], attention__sliding_window=0)

    assert len(found.layers) == 4
