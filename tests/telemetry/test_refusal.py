"""What servers say when they don't do what they were asked."""

from __future__ import annotations

import pytest

from llmsnap.telemetry.refusal import refusal


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, b'{"error": {"message": "too many tokens", "code": 400}}', "too many tokens"),
        (400, b'{"error": "bad prompt"}', "bad prompt"),
        (500, b'{"message": " lost ", "error": {}}', "lost"),
        (422, b'{"detail": "no such field"}', "no such field"),
        (422, b'{"detail": [{"loc": ["body"]}]}', "422 Unprocessable"),
        (502, b"<html>Bad Gateway</html>", "502 Bad Gateway"),
        (404, b"", "404 Not Found"),
        (499, b"null", "499"),
        (400, b'{"error": {"message": ""}, "message": "second"}', "second"),
        (400, b"[" * 100_000, "400 Bad Request"),
        (400, b'{"error": "\xff"}', "400 Bad Request"),
    ],
)
def test_the_reason_is_found(status: int, body: bytes, expected: str) -> None:
    """In the places where servers put it; else the status says it."""
    assert refusal(status, body).startswith(expected)


def test_long_reasons_are_cut() -> None:
    """At 500 characters."""
    assert refusal(400, b'{"error": "%b"}' % (b"x" * 600)) == "x" * 500 + "…"
