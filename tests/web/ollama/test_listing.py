"""What Ollama's clients are told of models."""

from __future__ import annotations

import json
from math import inf

import pytest

from llmsnap.config.schema import Capabilities, ModelConfig
from llmsnap.web.ollama.listing import FOR_EVER, abilities_of, running_of, shown_of, tag_of


@pytest.mark.parametrize(
    ("model", "able"),
    [
        (ModelConfig(cmd="serve"), ["completion", "tools"]),
        (ModelConfig(cmd="serve --mmproj x"), ["completion", "tools", "vision"]),
        (ModelConfig(cmd="serve --embeddings"), ["embedding"]),
        (
            ModelConfig(cmd="serve", capabilities=Capabilities(in_=("text", "image"))),
            ["completion", "vision"],
        ),
    ],
)
def test_what_a_model_can_do(model: ModelConfig, able: list[str]) -> None:
    """The configuration's word counts, then the command's."""
    assert abilities_of(model) == able


def test_no_command_is_told() -> None:
    """It may hold secrets."""
    model = ModelConfig(cmd="serve --api-key hush", capabilities=Capabilities(context=512))
    tag = tag_of("m", "m", model, size=5, since="then")
    shown = shown_of("m", model, since="then")

    assert "hush" not in json.dumps([tag, shown])
    assert len(tag["digest"]) == 64
    assert shown["model_info"]["llama.context_length"] == 512


def test_one_without_a_ttl_never_expires() -> None:
    """A date all the same, for clients want one."""
    tag = tag_of("m", "m", ModelConfig(cmd="serve"), size=5, since="then")

    assert running_of(tag, ModelConfig(), vram=0, left_s=inf)["expires_at"] == FOR_EVER
    assert running_of(tag, ModelConfig(), vram=0, left_s=60)["expires_at"] < FOR_EVER
