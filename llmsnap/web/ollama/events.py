"""A stream of OpenAI's events as lines of Ollama's, while it comes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import json

from llmsnap.web.ollama.answers import (
    Form,
    Record,
    error_text,
    figures_of,
    reason_of,
    tool_call,
)

_LOADING: Final = re.compile(rb"(?:queue|drain|evict|wake|start);dur=([0-9.]+)")


class Lines:
    """Turns pieces of an event stream into lines of JSON."""

    def __init__(self, form: Form, elapsed_s: Callable[[], float]) -> None:
        """`elapsed_s` returns how long ago the request came."""
        self.load_s = 0.0
        self._form = form
        self.elapsed_s = elapsed_s
        self._tail = b""
        self._calls: dict[int, dict[str, Any]] = {}
        self._reason = ""
        self._figures: dict[str, Any] = {}
        self._is_over = False

    def note_timing(self, text: bytes) -> None:
        """Learn how long the model took to come up, from what is in `Server-Timing`."""
        self.load_s = sum(map(float, _LOADING.findall(text))) / 1000 or self.load_s

    def feed(self, pieces: Iterable[bytes], *, complete: bool) -> list[bytes]:
        """Return the lines for what came; `complete`: that was all."""
        *whole, self._tail = (self._tail + b"".join(pieces)).split(b"\n")
        if complete:
            whole, self._tail = [*whole, self._tail], b""
        records = [record for line in whole for record in self._read(line.strip())]
        if complete:
            records += self._ending()
        return [json.encode(record) + b"\n" for record in records]

    def _read(self, line: bytes) -> Iterator[Record]:
        if line.startswith(b": server-timing"):
            self.note_timing(line)
        if not line.startswith(b"data:") or self._is_over:
            return
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            yield from self._ending()
            return
        try:
            said = json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return
        if isinstance(said, Mapping):
            yield from self._take(said)

    def _take(self, said: Mapping[str, Any]) -> Iterator[Record]:
        if "error" in said:
            self._is_over = True
            yield {"error": error_text(said)}
            return
        self._figures |= {key: said[key] for key in ("usage", "timings") if said.get(key)}
        for choice in said.get("choices") or ():
            self._reason = choice.get("finish_reason") or self._reason
            delta = choice.get("delta") or {"content": choice.get("text")}
            for call in delta.get("tool_calls") or ():
                self._add(call)
            text, thinking = delta.get("content") or "", delta.get("reasoning_content") or ""
            if text or thinking:
                yield self._form.record(text, thinking)

    def _add(self, part: Mapping[str, Any]) -> None:
        """Join a part of a call of a tool to what came before."""
        function = part.get("function") or {}
        call = self._calls.setdefault(
            part.get("index") or 0, {"function": {"name": "", "arguments": ""}}
        )
        if part.get("id"):
            call["id"] = part["id"]
        for key in ("name", "arguments"):
            call["function"][key] += function.get(key) or ""

    def _ending(self) -> Iterator[Record]:
        """Yield the last records, once; a stream that broke off is an error, not an end."""
        if self._is_over:
            return
        self._is_over = True
        if not self._reason:
            yield {"error": "the answer broke off"}
            return
        if self._calls:
            calls = [tool_call(self._calls[index]) for index in sorted(self._calls)]
            yield self._form.record("", calls=calls)
        figures = figures_of(self._figures, total_s=self.elapsed_s(), load_s=self.load_s)
        yield self._form.last(reason_of(self._reason), figures)
