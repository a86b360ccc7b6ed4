"""What a client of Ollama asks for, as OpenAI's endpoints are asked for it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

from msgspec import json

from llmsnap.errors import BadRequest

Body = Mapping[str, Any]

_OPTIONS: Final = frozenset(
    {
        *("temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop"),
        *("repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty"),
        *("mirostat", "mirostat_tau", "mirostat_eta"),
    }
)
"""Options that llama-server knows by the same names; `num_ctx` and its like are the server's."""

_DURATION: Final = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h)")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_FOR_EVER_S: Final = 100 * 365 * 86_400
_KINDS: Final = {"/9j/": "jpeg", "iVBOR": "png", "R0lGO": "gif", "UklGR": "webp"}
"""How base64 of images begins."""


def chat_request(body: Body) -> dict[str, Any]:
    """Return `/api/chat` as `/v1/chat/completions`. Raises BadRequest."""
    messages = body["messages"]
    if not _is_list_of_maps(messages):
        raise BadRequest("`messages` must be a list of objects with `role` and `content`")
    asked = _common(body) | {"messages": _messages(messages)}
    if tools := body.get("tools"):
        asked["tools"] = tools
    return asked


def generate_request(body: Body) -> dict[str, Any]:
    """Return `/api/generate` as a chat of one message. Raises BadRequest."""
    messages = [{"role": "user", "content": body["prompt"], "images": body.get("images") or ()}]
    if system := body.get("system"):
        messages.insert(0, {"role": "system", "content": system})
    return _common(body) | {"messages": _messages(messages)}


def raw_request(body: Body) -> dict[str, Any]:
    """Return `/api/generate` with `raw`, no template applied, as `/v1/completions`."""
    return _common(body) | {"prompt": body["prompt"]}


def embed_request(body: Body, key: str) -> dict[str, Any]:
    """Return a wish for embeddings as `/v1/embeddings`; the texts are under `key`."""
    if body.get(key) is None:
        raise BadRequest(f"the request has nothing to embed; put it into `{key}`")
    asked = {"model": body["model"], "input": body[key]}
    return asked | ({"dimensions": body["dimensions"]} if body.get("dimensions") else {})


def keep_alive_s(body: Body) -> float | None:
    """Return the seconds of `keep_alive`, infinite for ever; None: the request doesn't say.

    A number is seconds, a text a duration of Go's. Raises BadRequest.
    """
    given = body.get("keep_alive")
    if given is None or isinstance(given, bool):
        return None
    seconds = float(given) if isinstance(given, int | float) else _duration(str(given))
    return seconds if 0 <= seconds < _FOR_EVER_S else inf


def _duration(text: str) -> float:
    words, sign = text.strip(), 1
    if words.startswith("-"):
        words, sign = words[1:], -1
    if re.fullmatch(r"[0-9.]+", words):
        words += "s"
    parts = _DURATION.findall(words)
    try:
        if "".join(number + unit for number, unit in parts) != words or not parts:
            raise ValueError
        return sign * sum(float(number) * _SECONDS[unit] for number, unit in parts)
    except ValueError:
        raise BadRequest(f"keep_alive is {text!r}; write seconds or 5m, 1h30m") from None


def _common(body: Body) -> dict[str, Any]:
    """Return what all kinds of generating have in common."""
    is_stream = body.get("stream") is not False
    asked: dict[str, Any] = {"model": body["model"], "stream": is_stream}
    if is_stream:
        asked["stream_options"] = {"include_usage": True}
    options = body.get("options") or {}
    if not isinstance(options, Mapping):
        raise BadRequest('`options` must be an object, such as {"temperature": 0}')
    asked |= {key: options[key] for key in _OPTIONS if options.get(key) is not None}
    limit = options.get("num_predict")
    if isinstance(limit, int) and limit >= 0:
        asked["max_tokens"] = limit
    return asked | _format(body.get("format")) | _thinking(body.get("think"))


def _format(wanted: object) -> dict[str, Any]:
    if not wanted:
        return {}
    if wanted == "json":  # with a schema, because llama-server keeps to nothing else
        return {"response_format": {"type": "json_object", "schema": {"type": "object"}}}
    if not isinstance(wanted, Mapping):
        raise BadRequest(f'format is {wanted!r}; write "json" or a JSON schema')
    schema = {"name": "answer", "schema": wanted, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _thinking(wanted: object) -> dict[str, Any]:
    match wanted:
        case bool():
            return {"chat_template_kwargs": {"enable_thinking": wanted}}
        case str():
            return {"reasoning_effort": wanted}
        case _:
            return {}


def _messages(messages: Sequence[Body]) -> list[dict[str, Any]]:
    """Return the messages with ids for calls of tools, which Ollama hasn't got."""
    told: list[dict[str, Any]] = []
    unanswered: deque[str] = deque()
    for place, message in enumerate(messages):
        role = message.get("role") or "user"
        one: dict[str, Any] = {"role": role, "content": _content(message)}
        if thinking := message.get("thinking"):
            one["reasoning_content"] = thinking
        if calls := message.get("tool_calls"):
            one["tool_calls"] = [_call(call, f"call_{place}_{n}") for n, call in enumerate(calls)]
            unanswered = deque(call["id"] for call in one["tool_calls"])
        if role == "tool":
            given = message.get("tool_call_id")
            one["tool_call_id"] = given or (unanswered.popleft() if unanswered else f"call_{place}")
        told.append(one)
    return told


def _content(message: Body) -> Any:
    text, images = message.get("content") or "", message.get("images") or ()
    if not images:
        return text
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return parts + [{"type": "image_url", "image_url": {"url": _image(image)}} for image in images]


def _image(text: str) -> str:
    kind = next((kind for start, kind in _KINDS.items() if text.startswith(start)), "png")
    return f"data:image/{kind};base64,{text}"


def _call(call: Body, id_: str) -> dict[str, Any]:
    function = call.get("function") or {}
    given = function.get("arguments")
    arguments = given if isinstance(given, str) else json.encode(given or {}).decode()
    return {
        "id": call.get("id") or id_,
        "type": "function",
        "function": {"name": function.get("name") or "", "arguments": arguments},
    }


def _is_list_of_maps(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, Mapping) for one in value)
