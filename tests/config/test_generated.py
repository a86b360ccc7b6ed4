"""Configurations that are written for found models."""

from __future__ import annotations

from llmsnap.config.argv import split_command
from llmsnap.config.generated import FoundModel, config_text
from llmsnap.config.loader import loads


def test_another_server_can_be_named() -> None:
    """By a variable of the environment, with options if need be."""
    model = FoundModel(name="a", options=(("--model", "/x.gguf"),))
    text = config_text([model], environ={"LLAMA_SERVER": "/opt/llama-server --jinja"})

    assert split_command(loads(text).config.models["a"].cmd)[:2] == ["/opt/llama-server", "--jinja"]


def test_none_is_a_configuration_too() -> None:
    """With its heading."""
    text = config_text([], ["Nothing\nyet."])

    assert text == "# Nothing\n# yet.\nmodels: {}\n"
    assert not loads(text).config.models
