"""Connections to model servers: every framing of answers, and every way to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from llmsnap.web.headers import Answer
from llmsnap.web.upstream import UpstreamConnection
from tests.helpers.flow import hold, stands_still
from tests.helpers.waiting import eventually
from tests.web.scripted import Line, Received, Script, Scripted, whole

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass
class Kept:
    """A sink that keeps what it is told."""

    answer: Answer | None = None
    body: bytes = b""
    calls: int = 0
    complete: bool = False
    lost_because: str | None = None
    tail: bytes | None = None
    released: list[bool] = field(default_factory=list)

    def receive(self, answer: Answer | None, pieces: list[bytes], complete: bool) -> None:
        assert not self.complete
        self.calls += 1
        self.answer = answer or self.answer
        self.body += b"".join(pieces)
        self.complete = complete

    def upgraded(self, answer: Answer, tail: bytes) -> None:
        self.answer, self.tail = answer, tail

    def lost(self, reason: str) -> None:
        self.lost_because = reason

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.complete or self.lost_because is not None or self.tail is not None


def saying(*parts: bytes, then_close: bool = False) -> Script:
    """A script that sends these bytes, each in a write of its own."""

    async def script(_: Received, line: Line) -> None:
        for part in parts:
            await line.say(part)
            await line.heard()  # so that they arrive one by one
        if then_close:
            line.writer.close()

    return script


@asynccontextmanager
async def asked(
    script: Script, *, is_head: bool = False, request: bytes = GET
) -> AsyncIterator[tuple[Kept, UpstreamConnection, Scripted]]:
    """A connection on which one request was sent."""
    kept = Kept()

    def released(_: UpstreamConnection, reusable: bool) -> None:
        kept.released.append(reusable)

    async with Scripted.running(script) as server:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: UpstreamConnection(released), "127.0.0.1", server.port
        )
        connection.begin(kept, is_head=is_head)
        connection.transport.write(request)
        connection.sent()
        try:
            yield kept, connection, server
        finally:
            connection.transport.abort()


async def outcome(script: Script, *, is_head: bool = False) -> Kept:
    """What became of one request."""
    async with asked(script, is_head=is_head) as (kept, _, _):
        await eventually(lambda: kept.ended)
        return kept


async def test_what_comes_together_is_handed_on_together() -> None:
    """Head and body of a short answer in one call."""
    kept = await outcome(saying(whole(b"abc")))

    assert (kept.body, kept.complete, kept.calls) == (b"abc", True, 1)
    assert kept.released == [True]


CHUNKED = b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "body", "reusable"),
    [
        ([whole(b"abc")[:-2], b"bc"], b"abc", True),
        ([CHUNKED, b"3\r\nabc\r\n2\r", b"\nde\r\n0\r\n\r\n"], b"abcde", True),
        ([CHUNKED + b"3;x=y\r\nabc\r\n0\r\nX-Trailer: 1\r\n", b"\r\n"], b"abc", True),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", whole(b"abc")], b"abc", True),
        ([b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + whole(b"a")],
         b"a", True),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b"", True),
        ([b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"], b"", True),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], b"", True),
        ([whole(b"abc", "Connection: close")], b"abc", False),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc"], b"abc", False),
        ([whole(b"abc") + whole(b"unasked")], b"abc", False),
        ([whole(b"abc") + b"\0no HTTP"], b"abc", False),
        ([whole(b"abc", "Connection: close") * 2], b"abc", False),
        ([CHUNKED + b"3\r\nabc\r\n0\r\n\r\n\0no HTTP"], b"abc", False),
    ],
    ids=[
        "length", "chunks", "trailers", "continue", "hints", "204", "304", "empty", "close",
        "http/1.0", "too much", "rubbish", "two and an end", "rubbish behind chunks",
    ],
)  # fmt: skip
async def test_framings(parts: list[bytes], body: bytes, reusable: bool) -> None:
    """However the end is told, it is found, and whether the connection may be used again."""
    kept = await outcome(saying(*parts))

    assert (kept.body, kept.complete, kept.lost_because) == (body, True, None)
    assert kept.released == [reusable]


async def test_an_answer_may_end_with_its_connection() -> None:
    """Without a length the end of the connection is the end of the body."""
    kept = await outcome(saying(b"HTTP/1.1 200 OK\r\n\r\nab", b"cd", then_close=True))

    assert (kept.body, kept.complete) == (b"abcd", True)


@pytest.mark.parametrize(
    "head", [whole(b"abc")[:-3], CHUNKED, b"HTTP/1.1 200 OK\r\n\r\n"], ids=["length", "chunks", "-"]
)
async def test_an_answer_to_head_has_no_body(head: bytes) -> None:
    """Whatever its head says; the parser can't be used again after that."""
    kept = await outcome(saying(head), is_head=True)

    assert (kept.body, kept.complete, kept.released) == (b"", True, [False])


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "closed"),
        ([b"HTTP/1.1 200"], "closed"),
        ([whole(b"abcdef")[:-3]], "closed"),
        ([CHUNKED + b"3\r\nabc\r\n"], "closed"),
        ([b"SSH-2.0-OpenSSH\r\n"], "isn't HTTP"),
        ([CHUNKED + b"zz\r\n"], "isn't HTTP"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"], "transfer coding"),
    ],
)
async def test_what_isnt_whole_is_lost(parts: list[bytes], reason: str) -> None:
    """With the reason, and never as a complete answer."""
    kept = await outcome(saying(*parts, then_close=True))

    assert kept.lost_because is not None
    assert reason in kept.lost_because
    assert not kept.complete
    assert kept.released == []


@pytest.mark.parametrize(
    "endless",
    [b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 300_000, b"HTTP/1.1 100 Continue\r\n\r\n" * 90_000],
    ids=["headers", "interim"],
)
async def test_a_head_without_end_is_a_loss(endless: bytes) -> None:
    """Memory and patience have a limit: it is told long before all of it was read."""

    async def script(_: Received, line: Line) -> None:
        with suppress(ConnectionError):
            for at in range(0, len(endless), 65536):
                await line.say(endless[at : at + 65536])

    kept = await outcome(script)

    assert kept.lost_because is not None
    assert "KiB of headers or framing in a row" in kept.lost_because


async def test_a_reset_is_a_loss_too() -> None:
    """Also for an answer that would end with its connection."""

    async def script(_: Received, line: Line) -> None:
        await line.say(b"HTTP/1.1 200 OK\r\n\r\nab")
        await asyncio.sleep(0.05)
        line.reset()

    assert (await outcome(script)).lost_because


async def test_one_connection_serves_many_requests() -> None:
    """The parser begins anew each time."""
    async with asked(saying(whole(b"abc"))) as (kept, connection, server):
        await eventually(lambda: kept.ended)
        again = Kept()
        connection.begin(again, is_head=False)
        connection.transport.write(GET)
        connection.sent()
        await eventually(lambda: again.ended)

        assert (again.body, again.complete) == (b"abc", True)
        assert len(server.lines) == 1


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    """Between two requests a server has nothing to say."""
    async with asked(saying(whole(b"abc"), b"HTTP/1.1 408 Timeout\r\n\r\n")) as (kept, conn, _):
        await eventually(lambda: not conn.is_open)

        assert kept.body == b"abc"


async def test_an_early_answer_ends_the_connection() -> None:
    """What is left of the request would be taken for the next one."""
    async with asked(saying(whole(b"too large", status="413 No"))) as (kept, connection, _):
        connection.begin(kept, is_head=False)  # its body isn't sent yet
        await eventually(lambda: kept.complete)

        assert kept.released == [False]


async def test_a_switch_of_protocols_hands_the_rest_over() -> None:
    """What came behind the head belongs to the new protocol."""
    head = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    kept = await outcome(saying(head + b"\x81\x02hi"))

    assert kept.tail == b"\x81\x02hi"
    assert kept.answer is not None
    assert kept.answer.upgrade == b"websocket"


async def test_an_abandoned_answer_is_told_to_nobody() -> None:
    """The server sees the connection end at once."""

    async def script(_: Received, line: Line) -> None:
        await line.say(CHUNKED)
        await line.gone()

    async with asked(script) as (kept, connection, server):
        await eventually(lambda: kept.calls == 1)
        connection.abandon()
        await eventually(lambda: server.gone == 1)

        assert not kept.ended


async def test_a_server_that_doesnt_read_slows_the_sender_down() -> None:
    """`drain` waits until it reads on, or is gone."""

    async def script(_: Received, line: Line) -> None:
        hold(line.writer)
        await line.over.wait()

    async with asked(script) as (kept, connection, server):
        await eventually(lambda: len(server.received) == 1)
        for _ in range(200):
            connection.transport.write(b"x" * 2**16)
        draining = asyncio.ensure_future(connection.drain())
        await stands_still(connection.transport.get_write_buffer_size, for_s=0.05)
        assert not draining.done()
        connection.transport.abort()
        await draining

        assert kept.lost_because is not None


@pytest.mark.parametrize("parts", [[whole(b"abc")], [CHUNKED, b"3\r\nabc\r\n"]])
async def test_a_sink_that_fails_is_told_that_no_more_comes(parts: list[bytes]) -> None:
    """Whoever waits for it would wait for ever, and keep its model."""

    class Failing(Kept):
        def receive(self, answer: Answer | None, pieces: list[bytes], complete: bool) -> None:
            raise RuntimeError("a bug")

    async with asked(saying(*parts)) as (_, connection, _):
        failing = Failing()
        connection.begin(failing, is_head=False)
        await eventually(lambda: failing.ended)
        assert not connection.is_open
