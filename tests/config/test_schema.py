"""The structs of the file."""

from __future__ import annotations

from llmsnap.config.jsonschema import field_descriptions
from llmsnap.config.schema import Config, ModelConfig


def test_an_id_wins_over_an_alias() -> None:
    """Whatever order the models have."""
    config = Config(models={"a": ModelConfig(aliases=("b", "c")), "b": ModelConfig()})

    assert config.names() == {"a": "a", "b": "b", "c": "a"}


def test_each_description_is_a_sentence() -> None:
    """It ends like one."""
    for (struct, key), text in field_descriptions().items():
        assert text.endswith("."), f"{struct}.{key}: {text}"
