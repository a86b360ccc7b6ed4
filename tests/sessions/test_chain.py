"""What a conversation is known by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmsnap.sessions.chain import Chain, chain_of

CHAT = "/v1/chat/completions"


def chat(*messages: Any, **more: Any) -> Chain:
    """The chain of a chat."""
    found = chain_of(CHAT, json.dumps({"model": "a", "messages": messages, **more}).encode())
    assert found is not None
    return found


def user(text: Any) -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": text}


def test_each_message_is_a_mark_and_a_longer_talk_begins_like_a_shorter() -> None:
    """Up to the message that differs."""
    short, long = chat(user("a"), user("b")), chat(user("a"), user("b"), user("c"))

    assert len(short.marks) == 2
    assert long.shared_with(short.marks) == 2
    assert long.shared_with(chat(user("a"), user("x"), user("c")).marks) == 1
    assert long.shared_with(chat(user("x"), user("b"), user("c")).marks) == 0


def test_how_json_is_written_doesnt_count() -> None:
    """Nor the order of keys, nor settings of the sampler, nor text as a list of one part."""
    parts = chat({"content": [{"type": "text", "text": "ä"}], "role": "user"}, temperature=1)
    escaped = b'{"messages": [{"role":"user",\n"content":"\\u00e4"}], "stream": true}'

    assert parts.marks == chat(user("ä")).marks
    assert (found := chain_of(CHAT, escaped))
    assert found.marks == parts.marks


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function"}]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"system": "be brief"},
    ],
)
def test_what_reaches_the_template_counts(more: dict[str, Any]) -> None:
    """Tools, the template's own settings, Anthropic's system prompt."""
    assert chat(user("a"), **more).shared_with(chat(user("a")).marks) == 0


def test_calls_of_tools_count() -> None:
    """They are part of a message."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}

    assert chat(user("a"), call).shared_with(chat(user("a"), {**call, "tool_calls": []}).marks) == 1


def test_prompts_are_marked_piece_by_piece() -> None:
    """So that one that goes on from an answer is known by its beginning."""

    def prompt(text: str) -> Chain | None:
        return chain_of("/completion", json.dumps({"prompt": text}).encode())

    long, longer = prompt("x" * 1100), prompt("x" * 1100 + "answer and more" * 100)
    assert long is not None
    assert longer is not None
    assert len(long.marks) == 4
    assert longer.shared_with(long.marks) == 4
    assert prompt("short") is None


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[]", b"{}", b'{"messages": []}', b'{"messages": ["x"]}', b'"x"',
             b'{"messages": {"role": "user"}}', b"[" * 100_000, b"\xff"]
)  # fmt: skip
def test_what_is_no_conversation_has_no_chain(body: bytes) -> None:
    """Nothing is raised."""
    assert chain_of(CHAT, body) is None


def test_a_session_is_named_by_a_header_or_in_the_body() -> None:
    """The header wins, and neither is kept in clear."""
    body = json.dumps({"messages": [user("a")], "session_id": "mine"}).encode()
    in_body, in_header = chain_of(CHAT, body), chain_of(CHAT, body, "yours")

    assert in_body is not None
    assert in_header is not None
    assert in_body.session
    assert in_body.session != in_header.session
    assert "mine" not in in_body.session
    assert in_body.marks == in_header.marks
