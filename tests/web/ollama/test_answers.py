"""OpenAI's answers as Ollama's."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.web.ollama.answers import (
    Form,
    embedding_answer,
    embeddings_answer,
    error_text,
    tool_call,
    whole_answer,
)

CHAT = Form("m", True, lambda: "now")
TEXT = Form("m", False, lambda: "now")
SAID: dict[str, Any] = {
    "choices": [{"message": {"content": "hi", "reasoning_content": "hm"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    "timings": {"prompt_ms": 1.5, "predicted_ms": 4.0},
}


def test_a_whole_chat() -> None:
    """Times are nanoseconds."""
    assert whole_answer(SAID, CHAT, total_s=2.0, load_s=0.5) == {
        "model": "m",
        "created_at": "now",
        "message": {"role": "assistant", "content": "hi", "thinking": "hm"},
        "done": True,
        "done_reason": "stop",
        "total_duration": 2_000_000_000,
        "load_duration": 500_000_000,
        "prompt_eval_count": 7,
        "prompt_eval_duration": 1_500_000,
        "eval_count": 2,
        "eval_duration": 4_000_000,
    }


def test_a_whole_text() -> None:
    """Of `/v1/completions`, or of a chat."""
    said = {"choices": [{"text": "hi", "finish_reason": "length"}]}
    answer = whole_answer(said, TEXT, total_s=0, load_s=0)

    assert (answer["response"], answer["done_reason"]) == ("hi", "length")
    assert whole_answer(SAID, TEXT, total_s=0, load_s=0)["thinking"] == "hm"


@pytest.mark.parametrize(
    ("text", "arguments"), [('{"a": 1}', {"a": 1}), ("", {}), ("{broken", {}), (None, {})]
)
def test_arguments_of_tools_are_objects(text: str | None, arguments: object) -> None:
    """What is no JSON is none."""
    call = {"id": "c1", "function": {"name": "f", "arguments": text}}

    assert tool_call(call) == {"id": "c1", "function": {"name": "f", "arguments": arguments}}


def test_vectors_come_in_the_order_of_the_texts() -> None:
    """Whatever order they were computed in."""
    said = {"data": [{"index": 1, "embedding": [2]}, {"index": 0, "embedding": [1]}]}

    assert embeddings_answer(said, "m", total_s=0, load_s=0)["embeddings"] == [[1], [2]]
    assert embedding_answer(said) == {"embedding": [1]}
    assert embedding_answer({}) == {"embedding": []}


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"error": {"message": "no"}}, "no"),
        ({"error": "no"}, "no"),
        ({"detail": 1}, '{"detail":1}'),
        ("no", "no"),
    ],
)
def test_errors_are_a_text(said: object, text: str) -> None:
    """Whoever said them."""
    assert error_text(said) == text
