"""Which headers pass, in which form, and how a message is framed (RFC 9110 7.6.1, RFC 9112 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from llmsnap.core.messages import NO_WAIT, Phases
from llmsnap.telemetry.record import phases_spent

RawHeaders = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Concern one connection only, as does whatever `Connection` names."""

CLIENT_KEYS: Final = frozenset({b"authorization", b"x-api-key"})
"""Where clients put the proxy's own keys."""

# Written anew for the upstream: framing is ours, and aiohttp has answered `Expect` already.
_REWRITTEN: Final = HOP_BY_HOP | {b"content-length", b"expect", b"x-forwarded-for"}

# Left out of answers. Credentials are never allowed across origins, for browsers remember the key
# that they were asked for (Basic); and the model's name is ours to give.
_UNANSWERED: Final = HOP_BY_HOP | {
    b"content-length",
    b"access-control-allow-credentials",
    b"x-llmsnap-model",
}

_ALLOW_ORIGIN: Final = b"access-control-allow-origin"
_NOTED: Final = frozenset({b"date", b"cache-control", b"x-accel-buffering", _ALLOW_ORIGIN})
_READ: Final = _UNANSWERED | _NOTED | {b"content-type", b"content-encoding"}

# What `Connection` holds besides names of headers, and headers that nobody may take away by it.
_NOT_NAMED: Final = frozenset(
    {b"keep-alive", b"close", b"upgrade", b"host", b"content-length", b"transfer-encoding"}
)

EVENT_STREAM: Final = b"text/event-stream"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"


def reason_phrase(status: int) -> bytes:
    """Return the words behind a status of ours; most clients never look."""
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:  # 499 is nobody's standard
        return b"Cancelled"


def content_length(size: int) -> bytes:
    """Return the line that frames a body of that many bytes."""
    return b"Content-Length: %d\r\n" % size


def request_head(
    method: str,
    target: bytes,
    headers: RawHeaders,
    *,
    framing: bytes,
    peer: bytes,
    hidden: frozenset[bytes] = frozenset(),
    more: bytes = b"",
) -> bytes:
    """Return the head of the request to an upstream.

    `peer` is appended to `X-Forwarded-For`; empty: that header is left out. `hidden` names headers
    that don't pass, `framing` and `more` are whole lines.
    """
    passing = _passing(tuple(headers), peer, hidden)
    start = b"%b %b HTTP/1.1\r\n" % (method.encode(), target)
    return b"".join((start, passing, framing, more, b"\r\n"))


@lru_cache(maxsize=256)
def _passing(
    headers: tuple[tuple[bytes, bytes], ...], peer: bytes, hidden: frozenset[bytes]
) -> bytes:
    """Return the lines that pass; clients send the same ones with each request."""
    left_out = _REWRITTEN | hidden
    forwarded_for = []
    parts: list[bytes] = []
    for name, value in headers:
        lower = name.lower()
        if lower not in left_out:
            parts += (name, b": ", value, b"\r\n")
        elif lower == b"x-forwarded-for":
            forwarded_for.append(value)
        elif lower == b"connection" and (rest := _without_named(headers, value)) is not None:
            return _passing(tuple(rest), peer, hidden)
    if peer:
        forwarded_for.append(peer)
        parts += (b"X-Forwarded-For: ", b", ".join(forwarded_for), b"\r\n")
    return b"".join(parts)


def _without_named(headers: RawHeaders, connection: bytes) -> RawHeaders | None:
    """Return `headers` without those that a `Connection` header names; None when it names none."""
    named = {token.strip().lower() for token in connection.split(b",")} - _NOT_NAMED
    if not named:
        return None
    named.add(b"connection")
    return [header for header in headers if header[0].lower() not in named]


@dataclass(slots=True)
class Answer:
    """The head of an upstream's answer, read once."""

    status: int
    reason: bytes
    keep_alive: bool
    """Whether the connection may serve another request."""
    lines: bytes = b""
    """What passes of it, each line with its end; no framing."""
    length: int | None = None
    """`Content-Length`; None without one."""
    is_chunked: bool = False
    content_type: bytes = b""
    is_event_stream: bool = False
    is_json: bool = False
    is_encoded: bool = False
    """Compressed, so that nothing may be put into it."""
    upgrade: bytes = b""
    """To which protocol it switches, if it does."""
    noted: frozenset[bytes] = frozenset()
    """Those headers that it has which the proxy would add otherwise, in lower case."""


def read_answer(status: int, reason: bytes, headers: RawHeaders, *, keep_alive: bool) -> Answer:
    """Sort the headers of an answer into what passes and what they say of the body.

    Raises ValueError when its framing is none that we know.
    """
    answer = Answer(status, reason, keep_alive)
    passed: list[bytes] = []
    for name, value in headers:
        lower = name.lower()
        if lower not in _READ or _note(answer, lower, value):
            passed += (name, b": ", value, b"\r\n")
        elif lower == b"connection" and (rest := _without_named(headers, value)) is not None:
            return read_answer(status, reason, rest, keep_alive=keep_alive)
    answer.lines = b"".join(passed)
    return answer


def _note(answer: Answer, name: bytes, value: bytes) -> bool:
    """Take in what a header says; return whether it passes."""
    match name:
        case b"content-type":
            answer.content_type = value
            kind = value.lower()
            answer.is_event_stream = kind.startswith(EVENT_STREAM)
            answer.is_json = b"json" in kind
        case b"content-length":
            answer.length = int(value)
        case b"transfer-encoding":
            if value.strip().lower() != b"chunked":
                raise ValueError(f"transfer coding {value!r} isn't supported")
            answer.is_chunked = True
        case b"content-encoding":
            answer.is_encoded = value.strip().lower() not in (b"identity", b"")
        case b"upgrade":
            answer.upgrade = value
        case _ if name in _NOTED:
            if name == _ALLOW_ORIGIN and name in answer.noted:
                return False  # two of them make browsers refuse the answer
            answer.noted |= {name}
    return name not in _UNANSWERED


def model_line(model: str) -> bytes:
    """Return the header that says which model answers; what isn't ASCII is percent-encoded."""
    return b"X-Llmsnap-Model: %b\r\n" % quote(model, safe="!#$&'()*+,/:;=?@[] ").encode()


def timings(phases: Phases, prefill_s: float, paused_s: float = 0.0) -> bytes:
    """Return the value of `Server-Timing`, in milliseconds: the phases that were, then prefill."""
    value = b"prefill;dur=%.1f" % (prefill_s * 1e3)
    if paused_s:
        value += b", pause;dur=%.1f" % (paused_s * 1e3)
    if phases is not NO_WAIT and phases.total_s:
        value = b", ".join((*_metrics(phases), value))
    return value


def _metrics(phases: Phases) -> Iterable[bytes]:
    for name, seconds in phases_spent(phases).items():
        yield b"%b;dur=%.1f" % (name.encode(), seconds * 1e3)


class Dates:
    """The `Date` header that a proxy must add where the upstream sends none, made once a second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """Return the whole line."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._line = b"Date: %b\r\n" % formatdate(usegmt=True).encode()
        return self._line
