"""Streams of OpenAI's events as lines of Ollama's."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from llmsnap.web.ollama.answers import Form
from llmsnap.web.ollama.events import Lines


def event(**said: Any) -> bytes:
    """One event."""
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def delta(finish: str | None = None, **delta: Any) -> bytes:
    """An event of a chat."""
    return event(choices=[{"delta": delta, "finish_reason": finish}])


STREAM = b"".join(
    [
        b": server-timing queue;dur=0.5, start;dur=1000.0, prefill;dur=7\n\n",
        delta(role="assistant", content=None),
        delta(reasoning_content="hm"),
        delta(content="hé"),
        delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a"'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
        delta(finish="tool_calls"),
        event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 4}, timings={}),
        b"data: [DONE]\n\n",
    ]
)


def lines() -> Lines:
    """A translator of a chat that took two seconds."""
    return Lines(Form("m", True, lambda: "now"), lambda: 2.0)


def decoded(parts: list[bytes]) -> list[dict[str, Any]]:
    """The records in what was sent."""
    return [json.loads(line) for line in b"".join(parts).splitlines()]


def test_a_chat_with_thoughts_and_tools() -> None:
    """Calls come whole, and the figures last."""
    thought, text, called, last = decoded(lines().feed([STREAM], complete=True))

    assert thought["message"] == {"role": "assistant", "content": "", "thinking": "hm"}
    assert text["message"]["content"] == "hé"
    assert called["message"]["tool_calls"] == [
        {"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}
    ]
    assert (last["done"], last["done_reason"]) == (True, "stop")
    assert (last["prompt_eval_count"], last["eval_count"]) == (3, 4)
    assert (last["load_duration"], last["total_duration"]) == (1_000_500_000, 2_000_000_000)


@pytest.mark.parametrize("seed", range(20))
def test_pieces_may_end_anywhere(seed: int) -> None:
    """In the middle of a character, too."""
    rng, translated, sent = random.Random(seed), lines(), list[bytes]()
    rest = STREAM
    while rest:
        at = rng.randint(1, 20)
        piece, rest = rest[:at], rest[at:]
        sent += translated.feed([piece], complete=not rest)

    assert sent == lines().feed([STREAM], complete=True)


def test_texts_of_completions() -> None:
    """Which have no delta."""
    stream = event(choices=[{"text": "a", "finish_reason": "length"}])
    first, last = decoded(
        Lines(Form("m", False, lambda: "now"), lambda: 0.0).feed([stream], complete=True)
    )

    assert first["response"] == "a"
    assert last["done_reason"] == "length"


def test_an_error_is_the_last_line() -> None:
    """And nothing says that it is done."""
    stream = delta(content="a") + event(error={"message": "gone"}) + delta(content="b")

    assert decoded(lines().feed([stream], complete=True))[1:] == [{"error": "gone"}]


def test_a_stream_that_breaks_off_isnt_done() -> None:
    """So that nobody takes half an answer for a whole one."""
    assert decoded(lines().feed([delta(content="a")], complete=True))[-1] == {
        "error": "the answer broke off"
    }


def test_what_is_no_event_is_skipped() -> None:
    """As clients of event streams do."""
    odd = b": ping\n\nevent: x\nid: 1\ndata: nonsense\n\ndata: 5\n\n"

    assert lines().feed([odd], complete=False) == []
