"""Which headers pass, and in which form."""

from __future__ import annotations

import pytest

from llmsnap.core.messages import NO_WAIT, Phases
from llmsnap.web.headers import (
    CLIENT_KEYS,
    Answer,
    Dates,
    RawHeaders,
    content_length,
    model_line,
    read_answer,
    request_head,
    timings,
)


def head(headers: RawHeaders, *, hidden: frozenset[bytes] = frozenset()) -> list[bytes]:
    """The lines of a request's head for an upstream."""
    text = request_head(
        "POST", b"/x", headers, framing=content_length(3), peer=b"10.0.0.7", hidden=hidden
    )
    assert text.endswith(b"\r\n\r\n")
    return text.removesuffix(b"\r\n\r\n").split(b"\r\n")


def answer(*headers: tuple[bytes, bytes]) -> Answer:
    """A 200 with those headers."""
    return read_answer(200, b"OK", headers, keep_alive=True)


def test_end_to_end_headers_pass_as_they_were_written() -> None:
    """Names keep their case, values their bytes, repeated ones their order."""
    sent = [(b"HoSt", b"localhost:8080"), (b"X-A", b"1"), (b"x-a", b"\xff"), (b"Cookie", b"a=b")]

    assert head(sent)[1:5] == [b"HoSt: localhost:8080", b"X-A: 1", b"x-a: \xff", b"Cookie: a=b"]


def test_what_concerns_one_connection_stays_there() -> None:
    """Hop-by-hop headers, those that `Connection` names, and the client's framing are left out."""
    sent = [
        (b"Connection", b"keep-alive, X-Private"),
        (b"X-Private", b"1"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Content-Length", b"999"),
        (b"TE", b"trailers"),
        (b"Upgrade", b"h2c"),
        (b"Expect", b"100-continue"),
        (b"X-Public", b"2"),
    ]

    assert head(sent) == [
        b"POST /x HTTP/1.1",
        b"X-Public: 2",
        b"X-Forwarded-For: 10.0.0.7",
        b"Content-Length: 3",
    ]


def test_nobody_takes_framing_or_host_away() -> None:
    """What `Connection` names of those stays: two sides would see two messages otherwise."""
    named = (b"Connection", b"Content-Length, host, x-private")
    sent = [(b"Host", b"localhost"), (b"X-Private", b"1"), named]

    assert head(sent)[1] == b"Host: localhost"
    assert not any(b"X-Private" in line for line in head(sent))
    read = answer((b"Content-Length", b"5"), (b"X-Private", b"1"), named)
    assert (read.length, read.lines) == (5, b"")


def test_the_client_is_appended_to_x_forwarded_for() -> None:
    """Proxies in front are kept, in their order."""
    sent = [(b"X-Forwarded-For", b"1.1.1.1, 2.2.2.2"), (b"x-forwarded-for", b"3.3.3.3")]

    assert b"X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 10.0.0.7" in head(sent)
    assert sum(line.lower().startswith(b"x-forwarded-for") for line in head(sent)) == 1


def test_hidden_headers_dont_pass() -> None:
    """The proxy's own keys stop at the proxy, whatever the case of their header."""
    sent = [(b"AUTHORIZATION", b"Bearer k"), (b"X-Api-Key", b"k"), (b"Accept", b"*/*")]

    lines = head(sent, hidden=CLIENT_KEYS)

    assert lines[1] == b"Accept: */*"
    assert not any(line.endswith(b"k") for line in lines)


def test_an_answer_is_read_once() -> None:
    """What its headers say of the body is known, and its framing isn't passed on."""
    read = answer(
        (b"Content-Type", b"Text/Event-Stream; charset=utf-8"),
        (b"Transfer-Encoding", b"Chunked"),
        (b"Cache-Control", b"no-store"),
        (b"Connection", b"close"),
        (b"Keep-Alive", b"timeout=5, max=100"),
    )

    assert read.is_event_stream
    assert read.is_chunked
    assert read.length is None
    assert read.noted == {b"cache-control"}
    assert read.lines == (
        b"Content-Type: Text/Event-Stream; charset=utf-8\r\nCache-Control: no-store\r\n"
    )


def test_a_compressed_answer_is_known_as_such() -> None:
    """`identity` is none."""
    assert answer((b"Content-Encoding", b"br")).is_encoded
    assert not answer((b"Content-Encoding", b"identity")).is_encoded
    assert answer((b"Content-Encoding", b"gzip")).lines == b"Content-Encoding: gzip\r\n"


def test_u98_one_allow_origin_and_no_credentials() -> None:
    """Two of the first make browsers refuse; the second would open what Basic keys protect."""
    read = answer(
        (b"Access-Control-Allow-Origin", b"http://a"),
        (b"access-control-allow-origin", b"*"),
        (b"Access-Control-Allow-Credentials", b"true"),
    )

    assert read.lines == b"Access-Control-Allow-Origin: http://a\r\n"


def test_a_framing_that_isnt_known_is_refused() -> None:
    """Passing it on would tell the client a wrong length."""
    with pytest.raises(ValueError, match="gzip"):
        answer((b"Transfer-Encoding", b"gzip, chunked"))


def test_model_names_fit_into_a_header() -> None:
    """Slashes and spaces stay, what isn't ASCII is escaped, and no line can be put in."""
    assert model_line("org/model:8b q4") == b"X-Llmsnap-Model: org/model:8b q4\r\n"
    assert model_line("m\r\nX: y").count(b"\r\n") == 1
    assert model_line("glück") == b"X-Llmsnap-Model: gl%C3%BCck\r\n"


def test_timings_name_the_phases_that_were() -> None:
    """Milliseconds, in the order in which they followed each other, prefill last."""
    assert timings(NO_WAIT, 0.0123) == b"prefill;dur=12.3"
    assert timings(Phases(queue_s=0.5, evict_s=1, start_s=2.25), 1) == (
        b"queue;dur=500.0, evict;dur=1000.0, start;dur=2250.0, prefill;dur=1000.0"
    )


def test_the_date_is_made_once_a_second() -> None:
    """Within a second the same bytes are given out."""
    times = iter([7.1, 7.9, 8.0])
    dates = Dates(lambda: next(times))
    first, second, third = dates.line(), dates.line(), dates.line()

    assert first is second
    assert first.startswith(b"Date: ")
    assert first.endswith(b" GMT\r\n")
    assert third is not second
