"""Which commands run a llama-server: one judgement for its slots, its memory and its files."""

from __future__ import annotations

import pytest

from llmsnap.config.engine import is_llama_server, server_word
from llmsnap.config.loader import loads


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("llama-server -m a.gguf", "llama-server"),
        ("/opt/llama.cpp/llama-server-vulkan -m a.gguf", "/opt/llama.cpp/llama-server-vulkan"),
        ("llama-server.exe -m a.gguf", "llama-server.exe"),
        ("nice llama-server -m a.gguf", "llama-server"),
        ("env A=1 B=2 C=3 D=4 llama-server -m a.gguf", "llama-server"),
        ("nice -n 5 llama-server -m a.gguf", ""),
        ("docker run image llama-server -m /models/a.gguf", ""),
        ("ssh host llama-server -m a.gguf", ""),
        ("bash llama-server -m a.gguf", ""),
        ("vllm serve llama", ""),
        ("my-llama-server -m a.gguf", ""),
        ("python serve.py --program llama-server", ""),
        ("", ""),
    ],
)
def test_the_word_that_is_the_server(command: str, word: str) -> None:
    """It stands before the first option, and not behind what has files of its own."""
    assert server_word(command.split()) == word


@pytest.mark.parametrize(
    ("command", "engine", "expected"),
    [
        ("llama-server -m a.gguf", "auto", True),
        ("docker run image llama-server", "auto", False),
        ("docker run image llama-server", "llama-server", True),
        ("vllm serve llama", "llama-server", True),
        ("llama-server -m a.gguf", "other", False),
    ],
)
def test_the_configuration_knows_better(command: str, engine: str, *, expected: bool) -> None:
    """What `engine` says counts before the command."""
    text = f"models: {{a: {{cmd: '{command} ${{PORT}}', engine: {engine}}}}}"
    assert is_llama_server(loads(text, environ={}).config.models["a"]) is expected
