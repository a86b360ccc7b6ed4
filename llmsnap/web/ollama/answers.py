"""What OpenAI's endpoints answer, as Ollama's clients expect it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import json

Record = dict[str, Any]
Said = Mapping[str, Any]

NS: Final = 1_000_000_000
_NS_A_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Form:
    """Which of Ollama's answers it is, and what is the same in all its records."""

    model: str
    """As the client names it."""
    is_chat: bool
    """Whether text comes as a `message`; else as a `response`."""
    now: Callable[[], str]
    """Returns this moment, as RFC 3339 has it."""

    def record(self, text: str, thinking: str = "", calls: Iterable[Record] = ()) -> Record:
        """Return a record with a piece of the answer."""
        start: Record = {"model": self.model, "created_at": self.now()}
        more: Record = {"thinking": thinking} if thinking else {}
        if not self.is_chat:
            return {**start, "response": text, **more, "done": False}
        if made := list(calls):
            more["tool_calls"] = made
        return {**start, "message": {"role": "assistant", "content": text, **more}, "done": False}

    def last(
        self, reason: str, figures: Record | None = None, record: Record | None = None
    ) -> Record:
        """Return `record`, else an empty one, as the last one of an answer."""
        return {
            **(record or self.record("")),
            "done": True,
            "done_reason": reason,
            **(figures or {}),
        }


def whole_answer(said: Said, form: Form, *, total_s: float, load_s: float) -> Record:
    """Return a whole answer in one record."""
    choice: Said = (said.get("choices") or [{}])[0]
    message: Said = choice.get("message") or {"content": choice.get("text")}
    calls = [tool_call(call) for call in message.get("tool_calls") or ()]
    record = form.record(
        message.get("content") or "", message.get("reasoning_content") or "", calls
    )
    figures = figures_of(said, total_s=total_s, load_s=load_s)
    return form.last(reason_of(choice.get("finish_reason")), figures, record)


def embeddings_answer(said: Said, model: str, *, total_s: float, load_s: float) -> Record:
    """Return the answer to `/api/embed`."""
    usage: Said = said.get("usage") or {}
    return {
        "model": model,
        "embeddings": _vectors(said),
        "total_duration": int(total_s * NS),
        "load_duration": int(load_s * NS),
        "prompt_eval_count": usage.get("prompt_tokens") or 0,
    }


def embedding_answer(said: Said) -> Record:
    """Return the answer to the older `/api/embeddings`, which has one vector."""
    return {"embedding": next(iter(_vectors(said)), [])}


def _vectors(said: Said) -> list[Any]:
    data = sorted(said.get("data") or (), key=lambda one: int(one.get("index") or 0))
    return [one.get("embedding") for one in data]


def figures_of(said: Said, *, total_s: float, load_s: float) -> Record:
    """Return counts and durations (nanoseconds), out of `usage` and llama-server's `timings`."""
    usage: Said = said.get("usage") or {}
    timings: Said = said.get("timings") or {}
    read = usage.get("prompt_tokens", timings.get("prompt_n", 0) + timings.get("cache_n", 0))
    return {
        "total_duration": int(total_s * NS),
        "load_duration": int(load_s * NS),
        "prompt_eval_count": read,
        "prompt_eval_duration": int(timings.get("prompt_ms", 0) * _NS_A_MS),
        "eval_count": usage.get("completion_tokens", timings.get("predicted_n", 0)),
        "eval_duration": int(timings.get("predicted_ms", 0) * _NS_A_MS),
    }


def reason_of(finish: object) -> str:
    """Return why an answer ended; calls of tools are no reason of their own with Ollama."""
    return "length" if finish == "length" else "stop"


def tool_call(call: Said) -> Record:
    """Return a call of a tool, its arguments as an object."""
    function: Said = call.get("function") or {}
    text = function.get("arguments") or "{}"
    try:
        arguments = json.decode(text)
    except (msgspec.DecodeError, TypeError):
        arguments = {}
    called = {"name": function.get("name") or "", "arguments": arguments}
    return {"function": called} | ({"id": call["id"]} if call.get("id") else {})


def error_text(said: object) -> str:
    """Return the message of somebody's error object."""
    error = said.get("error", said) if isinstance(said, Mapping) else said
    if isinstance(error, Mapping):
        error = error.get("message", error)
    return error if isinstance(error, str) else json.encode(error).decode()
