"""What the proxy puts into event streams, and when."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest

from llmsnap.errors import BadGateway
from llmsnap.web import sse
from tests.helpers.waiting import eventually
from tests.web.handclock import HandClock


@pytest.mark.parametrize(
    ("sent", "between"),
    [
        ([], True),
        ([b"data: 1\n\n"], True),
        ([b"data: 1\r\n\r\n"], True),
        ([b"data: 1\r\r"], True),
        ([b"data: 1\n"], False),
        ([b"data: 1"], False),
        ([b"data: 1\n", b"\n"], True),
        ([b"data: 1\r\n", b"\r", b"\n"], True),
        ([b"data: 1\n\n", b"d"], False),
        ([b"data: 1\n\ndata: 2"], False),
        ([b": a comment\n\n"], True),
    ],
)
def test_where_something_may_be_put_in(sent: list[bytes], between: bool) -> None:
    """Between two events only, however they are cut on their way."""
    together, apart = sse.EventEnds(), sse.EventEnds()
    together.follow(sent)
    for piece in sent:
        apart.follow([piece])

    assert together.between is apart.between is between


def test_an_error_is_one_event() -> None:
    """Its data is one line with the error object; Anthropic's clients want it named."""
    error = BadGateway("it broke\noff")

    event = sse.error_event(error, "/v1/chat/completions").decode()
    assert event.startswith("data: ")
    assert event.endswith("\n\n")
    assert json.loads(event.removeprefix("data: "))["error"]["message"] == "it broke\noff"
    assert sse.error_event(error, "/v1/messages").startswith(b"event: error\ndata: {")


def test_an_upstreams_error_is_kept() -> None:
    """Made one line, otherwise as it was; what holds no error isn't one."""
    pretty = b'{\n  "error": {"message": "no\\nroom", "code": 7}\n}\n'

    event = sse.foreign_error_event(pretty, "/v1/completions")
    assert event == b'data: {"error":{"message":"no\\nroom","code":7}}\n\n'
    for body in (b"<html>", b'{"detail":"x"}', b"[1]", b"", b'{"error":null}', b"[" * 60_000):
        assert sse.foreign_error_event(body, "/") is None


def test_headers_against_buffering_are_added_where_they_miss() -> None:
    """What the upstream says itself is left."""
    assert sse.head_lines(()) == b"X-Accel-Buffering: no\r\nCache-Control: no-cache\r\n"
    assert sse.head_lines({b"cache-control"}) == b"X-Accel-Buffering: no\r\n"
    assert sse.head_lines({b"cache-control", b"x-accel-buffering"}) == b""


async def test_silence_is_noticed_again_and_again() -> None:
    """As long as it lasts, and not after the end."""
    rung: list[float] = []
    loop = asyncio.get_running_loop()
    silence = sse.Silence(loop, 0.02, lambda: rung.append(loop.time()))

    await eventually(lambda: len(rung) >= 3)
    silence.end()
    count = len(rung)
    await asyncio.sleep(0.06)

    assert len(rung) == count
    assert all(later - earlier >= 0.019 for earlier, later in pairwise(rung))


def test_whatever_is_noted_begins_it_anew() -> None:
    """A stream that speaks often enough is never told to be silent."""
    rung: list[int] = []
    clock = HandClock()
    silence = clock.silence(10, lambda: rung.append(1))
    for _ in range(7):
        clock.advance(9)
        silence.note()
    assert rung == []

    clock.advance(10)
    assert rung == [1]
    silence.end()


async def test_an_end_within_the_call_holds() -> None:
    """Whoever is called may end it."""
    rung: list[int] = []

    def broken() -> None:
        rung.append(1)
        silence.end()

    silence = sse.Silence(asyncio.get_running_loop(), 0.01, broken)
    await asyncio.sleep(0.05)

    assert rung == [1]
