"""Which headers pass, in which form, and how a message is framed (RFC 9110 7.6.1, RFC 9112 6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final
from urllib.parse import quote

from llmsnap.core.messages import Phases

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
    b"access-control-allow-credentials",
    b"x-llmsnap-model",
}

_ALLOW_ORIGIN: Final = b"access-control-allow-origin"
_NOTED: Final = frozenset({b"date", b"cache-control", b"x-accel-buffering", _ALLOW_ORIGIN})

_PLAIN_CONNECTION: Final = frozenset({b"keep-alive", b"close", b"upgrade"})

EVENT_STREAM: Final = b"text/event-stream"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"


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

    `peer` is appended to `X-Forwarded-For`, `hidden` names headers that don't pass, `framing` and
    `more` are whole lines.
    """
    named = _named_by_connection(headers)
    left_out = _REWRITTEN | hidden | named if hidden or named else _REWRITTEN
    forwarded_for = []
    parts = [method.encode(), b" ", target, b" HTTP/1.1\r\n"]
    for name, value in headers:
        lower = name.lower()
        if lower not in left_out:
            parts += (name, b": ", value, b"\r\n")
        elif lower == b"x-forwarded-for":
            forwarded_for.append(value)
    forwarded_for.append(peer)
    parts += (b"X-Forwarded-For: ", b", ".join(forwarded_for), b"\r\n", framing, more, b"\r\n")
    return b"".join(parts)


def _named_by_connection(headers: RawHeaders) -> frozenset[bytes]:
    """Return the lower-case names in `Connection` that aren't mere options of it."""
    named: set[bytes] = set()
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    named -= _PLAIN_CONNECTION
    return frozenset(named)


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
    named = _named_by_connection(headers)
    for name, value in headers:
        lower = name.lower()
        if lower == b"content-length":
            answer.length = int(value)
        elif lower == b"transfer-encoding":
            answer.is_chunked = _is_chunked(value)
        elif lower == b"upgrade":
            answer.upgrade = value
        elif lower in _UNANSWERED or lower in named:
            continue
        else:
            if lower == b"content-type":
                kind = value.lower()
                answer.is_event_stream = kind.startswith(EVENT_STREAM)
                answer.is_json = b"json" in kind
            elif lower == b"content-encoding":
                answer.is_encoded = value.strip().lower() not in (b"identity", b"")
            elif lower in _NOTED:
                if lower == _ALLOW_ORIGIN and lower in answer.noted:
                    continue  # two of them make browsers refuse the answer
                answer.noted |= {lower}
            passed += (name, b": ", value, b"\r\n")
    answer.lines = b"".join(passed)
    return answer


def _is_chunked(value: bytes) -> bool:
    if value.strip().lower() != b"chunked":
        raise ValueError(f"transfer coding {value!r} isn't supported")
    return True


def model_line(model: str) -> bytes:
    """Return the header that says which model answers; what isn't ASCII is percent-encoded."""
    return b"X-Llmsnap-Model: %b\r\n" % quote(model, safe="!#$&'()*+,/:;=?@[] ").encode()


def timings(phases: Phases, prefill_s: float) -> bytes:
    """Return the value of `Server-Timing`, in milliseconds: the phases that were, then prefill."""
    value = b"prefill;dur=%.1f" % (prefill_s * 1e3)
    if phases.total_s:
        value = b", ".join((*_metrics(phases), value))
    return value


def _metrics(phases: Phases) -> Iterable[bytes]:
    for name in ("queue", "drain", "evict", "wake", "start"):
        if seconds := getattr(phases, f"{name}_s"):
            yield b"%b;dur=%.1f" % (name.encode(), seconds * 1e3)


class Dates:
    """The `Date` header that a proxy must add where the upstream sends none, made once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def line(self, now_s: float) -> bytes:
        """Return the whole line; `now_s` is any clock that moves on with the seconds."""
        if int(now_s) != self._second:
            self._second = int(now_s)
            self._line = b"Date: %b\r\n" % formatdate(usegmt=True).encode()
        return self._line
