"""Which heads are of the common form, and what they say."""

from __future__ import annotations

import pytest

from llmsnap.web.head import CommonHead, read_common

LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
LENGTH = b"Content-Length: 2\r\n"
HOST = b"Host: localhost\r\n"


def head_of(*lines: bytes) -> CommonHead | None:
    """The head that those lines make, with an empty one behind them."""
    found = read_common(b"".join(lines) + b"\r\n{}", "10.0.0.1")
    return found[0] if found else None


def test_the_common_form() -> None:
    """Method, path, headers in any case and spelling, peer."""
    head = head_of(LINE, HOST, LENGTH, b"X-Odd:  a b \t\r\n", b"empty:\r\n")

    assert head is not None
    assert (head.method, head.path, head.raw_path) == ("POST", *["/v1/chat/completions"] * 2)
    assert head.remote == "10.0.0.1"
    assert head.headers.get("x-odd", "") == "a b"
    assert "EMPTY" in head.headers
    assert head.headers.get("accept", "none") == "none"
    assert head.raw_headers[2:] == ((b"X-Odd", b"a b"), (b"empty", b""))
    assert head.keep_alive


def test_where_the_body_is() -> None:
    """By its length, whatever follows and whatever looks like a length in it."""
    body = b"\r\nContent-Length: 7\r\n\r\n"
    sent = LINE + HOST + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    found = read_common(sent + LINE, "")

    assert found is not None
    assert sent[found[1] : found[2]] == body


def test_the_length_may_only_stand_in_the_head() -> None:
    """What looks like one in the body is none."""
    assert read_common(LINE + HOST + b"\r\n\r\nContent-Length: 2\r\n\r\n", "") is None


def test_heads_that_differ_by_their_length_are_one() -> None:
    """A client's next request costs no parsing."""
    assert head_of(LINE, HOST, LENGTH) is head_of(LINE, HOST, b"Content-Length: 345\r\n")
    assert head_of(LINE, HOST, LENGTH) is not head_of(LINE, HOST, b"X: y\r\n", LENGTH)


@pytest.mark.parametrize(
    ("value", "keep_alive"), [(b"close", False), (b"Close", False), (b"keep-alive", True)]
)
def test_whether_the_client_asks_again(value: bytes, keep_alive: bool) -> None:
    """As its head says."""
    head = head_of(LINE, HOST, LENGTH, b"Connection: %b\r\n" % value)

    assert head is not None
    assert head.keep_alive is keep_alive


@pytest.mark.parametrize(
    "lines",
    [
        [b"GET /x HTTP/1.1\r\n", HOST, LENGTH],
        [b"POST /x HTTP/1.0\r\n", HOST, LENGTH],
        [b"POST x HTTP/1.1\r\n", HOST, LENGTH],
        [b"POST /x?y HTTP/1.1\r\n", HOST, LENGTH],
        [b"POST /x#y HTTP/1.1\r\n", HOST, LENGTH],
        [b"POST  /x HTTP/1.1\r\n", HOST, LENGTH],
        [b"\r\n", LINE, HOST, LENGTH],
        [LINE, HOST],
        [LINE, LENGTH],
        [LINE, HOST, HOST, LENGTH],
        [LINE, HOST, LENGTH, LENGTH],
        [LINE, HOST, LENGTH, b"CONTENT-LENGTH: 3\r\n"],
        [LINE, HOST, b"Content-Length: 2, 2\r\n"],
        [LINE, HOST, b"Content-Length: +2\r\n"],
        [LINE, HOST, b"Content-Length: -2\r\n"],
        [LINE, HOST, b"Content-Length: 1234567890\r\n"],
        [LINE, HOST, b"Content-Length : 2\r\n"],
        [LINE, HOST, LENGTH, b"Transfer-Encoding: chunked\r\n"],
        [LINE, HOST, LENGTH, b"Expect: 100-continue\r\n"],
        [LINE, HOST, LENGTH, b"Upgrade: x\r\n"],
        [LINE, HOST, LENGTH, b"Connection: x-other\r\n"],
        [LINE, HOST, LENGTH, b"X: a\r\n folded\r\n"],
        [LINE, HOST, LENGTH, b"X: a\nY: b\r\n"],
        [LINE, HOST, LENGTH, b"X: a\rb\r\n"],
        [LINE, HOST, LENGTH, b"X: a\x00\r\n"],
        [LINE, HOST, LENGTH, b"X: \xff\r\n"],
        [LINE, HOST, LENGTH, b"no colon\r\n"],
        [LINE, HOST, LENGTH, b": no name\r\n"],
        [LINE, HOST, LENGTH, b"X: %b\r\n" % (b"x" * 20_000)],
        [LINE, HOST, LENGTH, *(b"X-%d: 1\r\n" % n for n in range(100))],
    ],
    ids=lambda lines: b"".join(lines)[-48:].decode("latin-1"),
)
def test_whatever_is_uncommon_is_left_to_a_real_parser(lines: list[bytes]) -> None:
    """It may be fine, or it may be an attack; it isn't for here to say."""
    assert head_of(*lines) is None


def test_half_a_head_is_none() -> None:
    """Nor is nothing at all."""
    assert read_common(b"", "") is None
    assert read_common(LINE + HOST + LENGTH, "") is None
