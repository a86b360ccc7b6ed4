"""What is kept of requests and answers, and what isn't."""

from __future__ import annotations

import gzip
import zlib
from base64 import b64decode
from typing import Any

import pytest

from llmsnap.telemetry.captures import Capture, Captures, Kept, redacted

HEADERS = ((b"Authorization", b"Bearer secret"), (b"Content-Length", b""), (b"X-A", b"1"))
LINES = b"Content-Type: text/plain\r\nSet-Cookie: a=b\r\n"


def captured(path: str = "/v1/chat/completions", limit: int = 100, **how: bool) -> Any:
    """A request of 8 bytes and an answer of 10, as they are shown; None: they aren't kept."""
    capture = Capture(path, HEADERS, limit)
    capture.asked([b"requ", memoryview(b"est!")], 8)
    capture.begin(LINES)
    capture.feed([b"ans", b"wer"])
    capture.feed([b"more"])
    kept = capture.kept(failed=how.get("failed", False))
    return kept and kept.shown(7)


def bodies(shown: Any) -> tuple[bytes, bytes]:
    """The request's and the answer's."""
    return b64decode(shown["req_body"]), b64decode(shown["resp_body"])


def test_both_are_kept_without_credentials() -> None:
    """Headers and bodies."""
    shown = captured()

    assert (shown["id"], shown["req_path"]) == (7, "/v1/chat/completions")
    assert bodies(shown) == (b"request!", b"answermore")
    assert shown["req_headers"] == {"Authorization": "[REDACTED]", "X-A": "1"}
    assert shown["resp_headers"] == {"Content-Type": "text/plain", "Set-Cookie": "[REDACTED]"}


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
    shown = captured(path)

    assert bodies(shown) == (request_, response)
    assert shown["req_headers"]


def test_of_failures_the_request_is_kept() -> None:
    """What was asked is of interest then."""
    assert bodies(captured(failed=True)) == (b"request!", b"")


@pytest.mark.parametrize("limit", [7, 13, 17])
def test_what_is_too_large_is_let_go(limit: int) -> None:
    """As soon as that is known."""
    assert captured(limit=limit) is None


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(b"plain", mtime=0)), ("deflate", zlib.compress(b"plain"))],
)
def test_a_compressed_answer_is_shown_plain(encoding: str, body: bytes) -> None:
    """Without the header that says how it was compressed."""
    shown = kept_with(encoding, body).shown(3)

    assert bodies(shown) == (b"", b"plain")
    assert shown["resp_headers"] == {"Content-Type": "text/plain"}


@pytest.mark.parametrize(("encoding", "body"), [("br", b"x"), ("gzip", b"no gzip")])
def test_what_cant_be_read_is_shown_as_it_came(encoding: str, body: bytes) -> None:
    """With the header."""
    shown = kept_with(encoding, body).shown(3)

    assert bodies(shown) == (b"", body)
    assert shown["resp_headers"]["Content-Encoding"] == encoding


def kept_with(encoding: str, body: bytes) -> Kept:
    """An answer that came compressed."""
    lines = f"Content-Type: text/plain\r\nContent-Encoding: {encoding}\r\n".encode()
    return Kept("/", (), b"", lines, body)


def test_the_oldest_make_room() -> None:
    """By size, not by number; one that is larger than all there is changes nothing."""
    captures = Captures(100_000)
    for id_, size in ((1, 40_000), (2, 40_000), (3, 200_000), (4, 40_000)):
        captures.keep(id_, Kept("/", (), b"x" * size, b"", b""))

    assert [id_ for id_ in range(1, 5) if id_ in captures] == [2, 4]
    assert captures.get(1) is None
    assert captures.get(4) is not None


@pytest.mark.parametrize(
    "name", ["X-Api-Key", "api-key", "x-goog-api-key", "X-AUTH-TOKEN", "Proxy-Authorization"]
)
def test_whatever_a_key_is_called_it_is_blanked(name: str) -> None:
    """Services have names of their own for the header with their key."""
    assert redacted([(name.encode(), b"s3cret"), (b"X-Tokenizer", b"a")]) == {
        name: "[REDACTED]",
        "X-Tokenizer": "a",
    }


def test_odd_headers_are_text_all_the_same() -> None:
    """Whatever bytes a client sends."""
    assert redacted([(b"X", b"\xff"), (b"COOKIE", b"a")]) == {"X": "\xff", "COOKIE": "[REDACTED]"}
