"""Answers that are translated on their way to the client."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest

from llmsnap.web.ollama.answers import Form
from llmsnap.web.ollama.events import Lines
from llmsnap.web.ollama.outlet import TranslatingOutlet

KEPT = b"Server-Timing: start;dur=500.0\r\nX-Llmsnap-Model: a\r\nSet-Cookie: x=1\r\n"


class Sent:
    """An outlet and what it wrote."""

    def __init__(self) -> None:
        self.written = bytearray()
        client, outbox = Mock(), Mock()
        client.transport.is_closing = lambda: False
        outbox.write = lambda _, parts: self.written.extend(b"".join(parts))
        self.lines = Lines(Form("m", True, lambda: "now"), lambda: 1.0)
        self.outlet = TranslatingOutlet(
            client,
            outbox,
            self.lines,
            lambda said: {"was": said},
            keep_alive=True,
            chunks_allowed=True,
        )

    def open(self, kind: bytes, *pieces: bytes, status: int = 200, complete: bool = True) -> None:
        """Have the hot path begin an answer."""
        self.outlet.open(
            (status, b"X"),
            b"Content-Type: %b\r\n%b" % (kind, KEPT),
            size=None,
            pieces=[*pieces],
            complete=complete,
        )


def test_an_answer_in_one_piece_is_collected() -> None:
    """Nothing is sent before its end, so that an error can still be the answer."""
    sent = Sent()
    sent.open(b"application/json", b'{"a"', complete=False)
    assert not sent.outlet.head_sent
    sent.outlet.send([b":1}"], complete=True)

    head, _, body = bytes(sent.written).partition(b"\r\n\r\n")
    assert json.loads(body) == {"was": {"a": 1}}
    assert b"X-Llmsnap-Model: a" in head
    assert b"Set-Cookie" not in head
    assert sent.outlet.is_whole
    assert sent.lines.load_s == pytest.approx(0.5)


@pytest.mark.parametrize(("status", "seen"), [(200, 502), (204, 502), (503, 503)])
def test_what_isnt_understood_is_an_error(status: int, seen: int) -> None:
    """An upstream's own status stays."""
    sent = Sent()
    sent.open(b"text/html", b"<h1>", status=status)

    assert sent.outlet.status == seen
    assert b'{"error":"<h1>"}' in sent.written


def test_a_stream_goes_out_as_it_comes() -> None:
    """As lines of JSON."""
    sent = Sent()
    sent.open(
        b"text/event-stream", b'data: {"choices":[{"delta":{"content":"y"}}]}\n', complete=False
    )

    assert sent.outlet.head_sent
    assert b"application/x-ndjson" in sent.written
    assert b'"content":"y"' in sent.written
