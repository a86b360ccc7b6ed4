"""What is kept of requests and answers, and what isn't."""

from __future__ import annotations

import gzip
import zlib
from base64 import b64decode

import pytest

from llmsnap.telemetry.captures import Capture, Captures, Kept, redacted

HEADERS = [(b"Authorization", b"Bearer secret"), (b"X-A", b"1")]
LINES = b"Content-Type: application/json\r\nSet-Cookie: a=b\r\n"


def captured(path: str = "/v1/chat/completions", limit: int = 100, **how: bool) -> Kept | None:
    """A request of 8 bytes and an answer of 10."""
    capture = Capture(path, HEADERS, limit)
    capture.asked([b"requ", memoryview(b"est!")], 8)
    capture.begin(LINES)
    capture.feed([b"ans", b"wer"])
    capture.feed([b"more"])
    return capture.kept(failed=how.get("failed", False))


def test_both_are_kept_without_credentials() -> None:
    """Headers and bodies."""
    kept = captured()

    assert kept is not None
    assert (kept.request, kept.response) == (b"request!", b"answermore")
    assert kept.request_headers == {"Authorization": "[REDACTED]", "X-A": "1"}
    assert kept.response_headers == {"Content-Type": "application/json", "Set-Cookie": "[REDACTED]"}


@pytest.mark.parametrize(
    ("path", "request_", "response"),
    [
        ("/v1/audio/speech", b"request!", b""),
        ("/v1/images/generations", b"request!", b""),
        ("/sdapi/v1/txt2img", b"request!", b""),
        ("/v1/audio/transcriptions", b"", b"answermore"),
        ("/v1/audio/voices", b"", b"answermore"),
        ("/v1/images/edits", b"", b""),
        ("/sdapi/v1/img2img", b"", b""),
    ],
)
def test_sounds_and_pictures_arent_kept(path: str, request_: bytes, response: bytes) -> None:
    """The headers are."""
    kept = captured(path)

    assert kept is not None
    assert (kept.request, kept.response) == (request_, response)
    assert kept.request_headers


def test_of_failures_the_request_is_kept() -> None:
    """What was asked is of interest then."""
    kept = captured(failed=True)

    assert kept is not None
    assert (kept.request, kept.response) == (b"request!", b"")


@pytest.mark.parametrize("limit", [7, 13, 17])
def test_what_is_too_large_is_let_go(limit: int) -> None:
    """As soon as that is known."""
    assert captured(limit=limit) is None


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_compressed_answer_is_shown_plain(pack: object) -> None:
    """Without the header that says how it was compressed."""
    assert callable(pack)
    name = "gzip" if pack is gzip.compress else "deflate"
    shown = kept_with(name, pack(b"plain")).shown(3)

    assert b64decode(shown["resp_body"]) == b"plain"
    assert shown["resp_headers"] == {"Content-Type": "text/plain"}


@pytest.mark.parametrize(("encoding", "body"), [("br", b"x"), ("gzip", b"no gzip")])
def test_what_cant_be_read_is_shown_as_it_came(encoding: str, body: bytes) -> None:
    """With the header."""
    shown = kept_with(encoding, body).shown(3)

    assert b64decode(shown["resp_body"]) == body
    assert shown["resp_headers"]["Content-Encoding"] == encoding


def kept_with(encoding: str, body: bytes) -> Kept:
    """An answer that came compressed."""
    headers = {"Content-Type": "text/plain", "Content-Encoding": encoding}
    return Kept(path="/", request_headers={}, request=b"", response_headers=headers, response=body)


def test_the_oldest_make_room() -> None:
    """By size, not by number; one that is larger than all there is changes nothing."""
    captures = Captures(100)
    for id_, size in ((1, 40), (2, 40), (3, 200), (4, 40)):
        captures.keep(
            id_,
            Kept(
                path="/",
                request_headers={},
                request=b"x" * size,
                response_headers={},
                response=b"",
            ),
        )

    assert [id_ for id_ in range(1, 5) if id_ in captures] == [2, 4]
    assert captures.get(1) is None
    assert captures.get(4) is not None


def test_odd_headers_are_text_all_the_same() -> None:
    """Whatever bytes a client sends."""
    assert redacted([(b"X", b"\xff"), (b"COOKIE", b"a")]) == {"X": "\xff", "COOKIE": "[REDACTED]"}
