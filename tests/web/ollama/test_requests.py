"""Ollama's requests as OpenAI's."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest

from llmsnap.errors import BadRequest
from llmsnap.web.ollama.requests import (
    chat_request,
    embed_request,
    generate_request,
    keep_alive_s,
    raw_request,
)

HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def test_a_chat_streams_unless_told_otherwise() -> None:
    """As Ollama's own server does."""
    streamed = chat_request({"model": "m", "messages": HI})
    whole = chat_request({"model": "m", "messages": HI, "stream": False})

    assert streamed["stream"] is True
    assert streamed["stream_options"] == {"include_usage": True}
    assert whole == {"model": "m", "stream": False, "messages": HI}


def test_options_go_to_the_top() -> None:
    """Those that are the server's own business are left out."""
    options = {"temperature": 0, "num_predict": 5, "num_ctx": 9, "stop": ["x"], "seed": None}
    asked = chat_request({"model": "m", "messages": HI, "options": options})

    assert {key: asked.get(key) for key in ("temperature", "max_tokens", "stop")} == {
        "temperature": 0,
        "max_tokens": 5,
        "stop": ["x"],
    }
    assert not {"num_ctx", "seed", "options"} & asked.keys()
    assert "max_tokens" not in chat_request(
        {"model": "m", "messages": HI, "options": {"num_predict": -1}}
    )


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (
            {"format": "json"},
            {"response_format": {"type": "json_object", "schema": {"type": "object"}}},
        ),
        (
            {"format": {"type": "object"}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
        ({"format": ""}, {}),
        ({"think": False}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ({"think": "high"}, {"reasoning_effort": "high"}),
        ({"tools": [{"type": "function"}]}, {"tools": [{"type": "function"}]}),
    ],
)
def test_forms_thoughts_and_tools(given: dict[str, Any], asked: dict[str, Any]) -> None:
    """Each by OpenAI's name for it."""
    plain = chat_request({"model": "m", "messages": HI})

    assert chat_request({"model": "m", "messages": HI, **given}) == plain | asked


def test_calls_of_tools_and_their_answers_find_each_other() -> None:
    """By ids, which Ollama's messages lack; arguments become a text."""
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        *HI,
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "content": "1", "tool_name": "f"},
        {"role": "tool", "content": "2", "tool_name": "f"},
    ]
    told = chat_request({"model": "m", "messages": messages})["messages"]

    ids = [one["id"] for one in told[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [told[2]["tool_call_id"], told[3]["tool_call_id"]] == ids
    assert json.loads(told[1]["tool_calls"][0]["function"]["arguments"]) == {"a": 1}


def test_images_become_parts() -> None:
    """With the type that their first bytes tell."""
    asked = generate_request({"model": "m", "prompt": "what?", "images": ["/9j/x", "iVBORx"]})

    assert asked["messages"][0]["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/x"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORx"}},
    ]


def test_a_prompt_is_a_chat_unless_it_is_raw() -> None:
    """The model's template is applied to it."""
    asked = generate_request({"model": "m", "prompt": "p", "system": "s"})

    assert [one["role"] for one in asked["messages"]] == ["system", "user"]
    assert raw_request({"model": "m", "prompt": "p"})["prompt"] == "p"


def test_texts_to_embed() -> None:
    """One, or several."""
    assert embed_request({"model": "m", "input": ["a"]}, "input") == {"model": "m", "input": ["a"]}
    with pytest.raises(BadRequest, match="`prompt`"):
        embed_request({"model": "m"}, "prompt")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (None, None),
        (0, 0),
        (30, 30),
        ("0", 0),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        (-1, inf),
        ("-1m", inf),
        (1e18, inf),
    ],
)
def test_how_long_a_model_is_kept(given: object, seconds: float | None) -> None:
    """A negative time is for ever, and so is one that nobody will see the end of."""
    assert keep_alive_s({"keep_alive": given}) == seconds


@pytest.mark.parametrize(
    "body",
    [
        {"messages": "x"},
        {"messages": ["x"]},
        {"messages": HI, "format": 5},
        {"messages": HI, "options": [1]},
    ],
)
def test_what_cant_be_understood_is_refused(body: dict[str, Any]) -> None:
    """With what it should be."""
    with pytest.raises(BadRequest):
        chat_request({"model": "m", **body})
    with pytest.raises(BadRequest, match="5m"):
        keep_alive_s({"keep_alive": "soon"})
