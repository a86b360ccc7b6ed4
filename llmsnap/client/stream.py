"""One streamed answer: its text as it comes, then what it took."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from llmsnap.client.proxy import Client, NoProxy, Refused
from llmsnap.telemetry.tokens import Excerpt, Tokens

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETION_PATH: Final = "/v1/completions"
_CHUNK_BYTES: Final = 64 * 1024
_AFTER_FORWARDING: Final = frozenset({"prefill", "pause"})
"""Phases that are no wait for the model; see `Server-Timing` in docs/api.md."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of an answer's text."""

    text: str
    is_thought: bool = False
    """Whether the model says it to itself before it answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one answer took, as its client saw it and as the servers tell."""

    model: str
    """The id of the model that answered; empty: it isn't known."""
    total_s: float
    first_s: float | None = None
    """From the request to the first text; None: none came."""
    phases_s: Mapping[str, float]
    """What the time to the first byte was made of; empty where the server doesn't tell."""
    tokens: Tokens | None = None

    @property
    def waited_s(self) -> float:
        """Seconds until the model was there."""
        return sum(waits_of(self.phases_s).values())

    @property
    def tokens_per_s(self) -> float | None:
        """How fast it was generated; the server's word, else by the clock from the first text."""
        count = self.tokens.generated if self.tokens else None
        if self.tokens is None or count is None or self.first_s is None:
            return None
        if took_s := self.tokens.generation_s:
            return count / took_s
        took_s = self.total_s - self.first_s
        return (count - 1) / took_s if count > 1 and took_s > 0 else None


class Stream:
    """An answer whose head is there. Iterate it to its end, then read `figures`."""

    def __init__(
        self, answer: http.client.HTTPResponse, began: float, clock: Callable[[], float]
    ) -> None:
        self._answer = answer
        self._began = began
        self._clock = clock
        self._excerpt = Excerpt()
        self._phases = phases_of(answer.headers.get("Server-Timing", ""))
        self._first_at: float | None = None
        self._ended_at: float | None = None

    def __iter__(self) -> Iterator[Piece]:
        """Yield the text. Raises Refused when the server gives up, NoProxy when it goes away."""
        try:
            for piece in self._pieces():
                if self._first_at is None:
                    self._first_at = self._clock()
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise NoProxy(f"the answer broke off: {error}") from error
        finally:
            self._ended_at = self._clock()

    @property
    def figures(self) -> Figures:
        """What it took so far."""
        ended_at = self._clock() if self._ended_at is None else self._ended_at
        return Figures(
            model=self._answer.headers.get("X-Llmsnap-Model", ""),
            total_s=ended_at - self._began,
            first_s=None if self._first_at is None else self._first_at - self._began,
            phases_s=self._phases,
            tokens=self._excerpt.tokens(),
        )

    def _pieces(self) -> Iterator[Piece]:
        if "text/event-stream" not in self._answer.headers.get("Content-Type", ""):
            body = self._answer.read()
            self._excerpt.feed([body])
            yield from _said(body)
            return
        for line in self._lines():
            if line.startswith(b": server-timing "):
                self._phases = phases_of(line.decode(errors="replace").split(" ", 2)[2])
            elif line.startswith(b"data:"):
                yield from _said(line.removeprefix(b"data:"))

    def _lines(self) -> Iterator[bytes]:
        """Yield whole lines. http.client's own `readline` takes an answer that is cut for whole."""
        rest = b""
        while came := self._answer.read1(_CHUNK_BYTES):
            self._excerpt.feed([came])
            *lines, rest = (rest + came).split(b"\n")
            yield from lines
        if self._answer.length:
            raise NoProxy("the answer broke off")


@contextmanager
def ask(
    client: Client,
    path: str,
    body: Mapping[str, Any],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Stream]:
    """Lend the answer to `body`, streamed; leaving early hangs up. Raises NoProxy or Refused."""
    wanted = {**body, "stream": True, "stream_options": {"include_usage": True}}
    began = clock()
    with client.ask("POST", path, wanted) as answer:
        yield Stream(answer, began, clock)


def phases_of(timing: str) -> dict[str, float]:
    """Return the seconds in a `Server-Timing`; what can't be read is left out."""
    phases = {}
    for part in timing.split(","):
        name, _, milliseconds = part.strip().partition(";dur=")
        try:
            phases[name] = float(milliseconds) / 1000
        except ValueError:
            continue
    return phases


def waits_of(phases_s: Mapping[str, float]) -> dict[str, float]:
    """Return those phases in which the model wasn't there yet."""
    return {name: s for name, s in phases_s.items() if name not in _AFTER_FORWARDING}


def _said(data: bytes) -> Iterator[Piece]:
    """Yield the text in one event, or in a whole answer. Raises Refused for an error."""
    try:
        event = json.loads(data)
    except ValueError:
        return  # [DONE]
    if not isinstance(event, dict):
        return
    if error := event.get("error"):
        message = error.get("message") if isinstance(error, dict) else None
        raise Refused(str(message or error))
    for choice in event.get("choices") or ():
        part = choice.get("delta") or choice.get("message") or choice
        if thought := part.get("reasoning_content") or part.get("reasoning"):
            yield Piece(str(thought), is_thought=True)
        if text := part.get("content") or part.get("text"):
            yield Piece(str(text))
