"""What clients get of an upstream's answers."""

from __future__ import annotations

import asyncio
import gzip
import json

import aiohttp
import pytest

from llmsnap.config.schema import ModelConfig
from llmsnap.core.messages import Phases
from llmsnap.errors import StartFailed, UpstreamLost
from tests.helpers.waiting import eventually
from tests.web.handclock import HandClock
from tests.web.scripted import STREAM_HEAD, Line, Received, Script, say_ok, whole
from tests.web.stage import PING_S, Stage, read_until, staged

STREAM = b'{"model":"a","stream":true}'
PING = b": ping\n\n"


def saying(*parts: bytes) -> Script:
    """A server that sends these bytes, one write after the other."""

    async def script(_: Received, line: Line) -> None:
        for part in parts:
            await line.say(part)
            await line.heard()

    return script


def request(body: bytes = b'{"model":"a"}', *, version: str = "1.1", more: str = "") -> bytes:
    """A raw chat request."""
    head = f"POST /v1/chat/completions HTTP/{version}\r\nHost: localhost\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def raw(script: Script, sent: bytes) -> tuple[bytes, bytes]:
    """Head and body of what a client gets that closes afterwards."""
    async with staged(script) as stage:
        head, _, body = (await stage.site.exchange(sent)).partition(b"\r\n\r\n")
        return head, body


CLOSING = "Connection: close\r\n"


async def test_an_answer_passes_as_it_is() -> None:
    """Status, reason, headers in their spelling, body."""
    head, body = await raw(
        saying(whole(b"nope", "X-cAsE: \xff", status="418 Short And Stout")),
        request(more=CLOSING),
    )

    assert head.startswith(b"HTTP/1.1 418 Short And Stout\r\n")
    assert b"\r\nX-cAsE: \xc3\xbf\r\n" in head
    assert body == b"nope"


async def test_the_head_says_which_model_and_how_long() -> None:
    """Phases that took time, then prefill; a date where the upstream gives none."""
    async with staged() as stage:
        stage.lender.phases = Phases(queue_s=0.5, start_s=1.25)
        async with stage.ask() as answer:
            assert answer.headers["X-Llmsnap-Model"] == "a"
            assert answer.headers["Date"].endswith("GMT")
            timing = answer.headers["Server-Timing"]

    assert timing.startswith("queue;dur=500.0, start;dur=1250.0, prefill;dur=")


@pytest.mark.parametrize(
    ("parts", "framing"),
    [
        ([whole(b"abc")], b"Content-Length: 3"),
        ([whole(b"abc")[:-1], b"c"], b"Content-Length: 3"),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"],
            b"Content-Length: 3",
        ),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n"],
            b"Transfer-Encoding: chunked",
        ),
    ],
    ids=["whole", "in two", "chunks at once", "chunks"],
)
async def test_one_framing(parts: list[bytes], framing: bytes) -> None:
    """The length where it is known, chunks otherwise; never both."""
    head, body = await raw(saying(*parts), request(more=CLOSING))

    assert framing in head
    assert (
        head.lower().count(b"\r\ntransfer-encoding:") + head.lower().count(b"\r\ncontent-length:")
        == 1
    )
    assert b"abc" in body


async def test_an_old_client_gets_no_chunks() -> None:
    """For HTTP/1.0 the end of the connection is the end of an answer without a length."""
    stream = STREAM_HEAD + b"9\r\ndata: 1\n\n\r\n"
    head, body = await raw(saying(stream, b"0\r\n\r\n"), request(STREAM, version="1.0"))

    assert b"Connection: close" in head
    assert b"chunked" not in head
    assert body == b"data: 1\n\n"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_answers_without_a_body(status: str) -> None:
    """They have no framing, and the connection goes on."""
    script = saying(f"HTTP/1.1 {status}\r\nETag: x\r\n\r\n".encode())
    async with staged(script) as stage:
        for _ in range(2):
            async with stage.ask() as answer:
                assert answer.status == int(status[:3])
                assert "Content-Length" not in answer.headers
                assert "Transfer-Encoding" not in answer.headers


async def test_head_answers_have_the_length_and_no_body() -> None:
    """As the upstream says it would be."""
    async with staged(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")) as stage:
        for _ in range(2):
            async with stage.site.session.head("/upstream/a/file") as answer:
                assert answer.headers["Content-Length"] == "12345"
                assert await answer.read() == b""


async def test_u97_compressed_answers_pass_untouched() -> None:
    """The bytes are the upstream's, whatever they are compressed with."""
    packed = gzip.compress(b'{"x":1}')
    async with staged(saying(whole(packed, "Content-Encoding: gzip"))) as stage:
        session = aiohttp.ClientSession(stage.site.url, auto_decompress=False)
        async with session, session.post("/v1/completions", json={"model": "a"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert await answer.read() == packed
        stage.server.script = saying(whole(b"\x8b\x00\x80", "Content-Encoding: br"))
        session = aiohttp.ClientSession(stage.site.url, auto_decompress=False)
        async with session, session.post("/v1/completions", json={"model": "a"}) as answer:
            assert answer.headers["Content-Encoding"] == "br"
            assert await answer.read() == b"\x8b\x00\x80"


async def test_u98_the_upstreams_origin_passes_once() -> None:
    """Nothing of ours is added to it."""
    origin = "Access-Control-Allow-Origin: *"
    async with staged(saying(whole(b"{}", origin, origin))) as stage:
        async with stage.ask(headers={"Origin": "http://x"}) as answer:
            assert answer.headers.getall("Access-Control-Allow-Origin") == ["*"]


async def test_u93_an_engines_error_is_its_own() -> None:
    """Status and body unchanged, no envelope of ours."""
    body = b'{"error":{"message":"batch too large","type":"engine"}}'
    async with staged(saying(whole(body, status="422 Unprocessable"))) as stage:
        async with stage.ask() as answer:
            assert (answer.status, await answer.read()) == (422, body)


# ---- event streams -----------------------------------------------------------------------------


async def test_p40_u41_event_streams_arrive_as_they_are_made() -> None:
    """Each event before the next one is made, with headers that keep proxies from holding it."""
    go_on = asyncio.Event()

    async def script(_: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        for n in range(3):
            await line.chunk(b"data: %d\n\n" % n)
            await go_on.wait()
            go_on.clear()
        await line.say(b"0\r\n\r\n")

    async with staged(script, ping_s=60) as stage, stage.ask(STREAM) as answer:
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["Cache-Control"] == "no-cache"
        for n in range(3):
            assert await read_until(answer, b"\n\n") == b"data: %d\n\n" % n
            go_on.set()
        assert await answer.read() == b""


async def test_headers_against_buffering_arent_doubled() -> None:
    """What the upstream says stands."""
    head = STREAM_HEAD[:-2] + b"Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n\r\n"
    async with staged(saying(head, b"0\r\n\r\n")) as stage, stage.ask(STREAM) as answer:
        assert answer.headers.getall("Cache-Control") == ["no-store"]
        assert answer.headers.getall("X-Accel-Buffering") == ["no"]


async def test_u45_u46_silence_is_filled_between_events_only() -> None:
    """After the head, and after a whole event; never in the middle of one."""
    pieces = asyncio.Queue[bytes]()

    async def script(_: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        while piece := await pieces.get():
            await line.chunk(piece)
        await line.say(b"0\r\n\r\n")

    async with staged(script, ping_s=PING_S) as stage, stage.ask(STREAM) as answer:
        await read_until(answer, PING * 2)
        pieces.put_nowait(b"data: 1\n\ndata: ")
        await asyncio.sleep(PING_S * 2.5)
        pieces.put_nowait(b"2\n\n")
        heard = b""
        while not heard.endswith(b"data: 1\n\ndata: 2\n\n" + PING * 2):
            heard += await read_until(answer, PING)
        pieces.put_nowait(b"")
        rest = await answer.read()

    assert (heard + rest).replace(PING, b"") == b"data: 1\n\ndata: 2\n\n"


async def test_an_upstreams_own_comments_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't silent gets nothing from us."""
    clock = HandClock()
    clock.keeps(monkeypatch, "sse")
    pieces = asyncio.Queue[bytes]()

    async def script(_: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        while piece := await pieces.get():
            await line.chunk(piece)
        await line.say(b"0\r\n\r\n")

    async with staged(script, ping_s=10) as stage, stage.ask(STREAM) as answer:
        for _ in range(7):
            pieces.put_nowait(b": still here\n\n")
            assert await read_until(answer, b"\n\n") == b": still here\n\n"
            clock.advance(9)
        clock.advance(1)
        pieces.put_nowait(b"")
        assert await answer.read() == PING


@pytest.mark.parametrize(
    "head",
    [
        STREAM_HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n",
        STREAM_HEAD.replace(b"text/event-stream", b"application/x-ndjson"),
    ],
    ids=["compressed", "other type"],
)
async def test_nothing_is_put_into_what_is_no_plain_event_stream(head: bytes) -> None:
    """A comment would break it."""

    async def script(_: Received, line: Line) -> None:
        await line.say(head)
        await asyncio.sleep(PING_S * 3)
        await line.chunk(b"abc")
        await line.say(b"0\r\n\r\n")

    async with staged(script, ping_s=PING_S) as stage:
        session = aiohttp.ClientSession(stage.site.url, auto_decompress=False)
        async with session, session.post("/v1/completions", data=STREAM) as answer:
            assert await answer.read() == b"abc"


async def test_a_stream_with_a_length_may_grow() -> None:
    """Comments need room that its length doesn't have."""
    head = whole(b"data: 1\n\n", content_type="text/event-stream")[:-9]
    go_on = asyncio.Event()

    async def script(_: Received, line: Line) -> None:
        await line.say(head)
        await go_on.wait()
        await line.say(b"data: 1\n\n")

    async with staged(script, ping_s=PING_S) as stage, stage.ask(STREAM) as answer:
        assert "Content-Length" not in answer.headers
        assert await read_until(answer, PING) == PING
        go_on.set()
        assert (await answer.read()).replace(PING, b"") == b"data: 1\n\n"


# ---- while a stream waits for its model --------------------------------------------------------


async def early(stage: Stage) -> aiohttp.ClientResponse:
    """An answer whose head went before its model was up."""
    answer = await stage.ask(STREAM)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["X-Accel-Buffering"] == "no"
    assert answer.headers["X-Llmsnap-Model"] == "a"
    assert await read_until(answer, b"\n\n") == b": ping\n\n"
    return answer


def events(text: bytes) -> list[bytes]:
    """What clients see of a stream."""
    return [part for part in text.split(b"\n\n") if part and not part.startswith(b":")]


async def test_a_waiting_stream_is_kept_company() -> None:
    """Pings, then the timings as a comment, then the upstream's own bytes."""
    stream = saying(STREAM_HEAD, b"9\r\ndata: 1\n\n\r\n0\r\n\r\n")
    async with staged(stream, up=False, ping_s=PING_S) as stage:
        stage.lender.phases = Phases(start_s=0.25)
        answer = await early(stage)
        stage.put_up()
        text = await answer.read()

    comments, _, rest = text.replace(b": ping\n\n", b"").partition(b"\n\n")
    assert comments.startswith(b": server-timing start;dur=250.0, prefill;dur=")
    assert rest == b"data: 1\n\n"
    assert stage.received["accept-encoding"] == "identity"


async def test_other_requests_wait_in_silence() -> None:
    """Without `stream: true` nothing is sent before the upstream answers."""
    async with staged(up=False, ping_s=PING_S) as stage:
        asked = asyncio.ensure_future(stage.text())
        await eventually(lambda: bool(stage.lender.waiting))
        await asyncio.sleep(PING_S * 2.5)
        assert not asked.done()
        stage.put_up()
        assert await asked == '{"ok":true}'


async def test_a_failed_start_ends_a_waiting_stream_with_an_event() -> None:
    """One `data:` event with the error object, no `[DONE]`, and a proper end of the body."""
    async with staged(up=False, ping_s=PING_S) as stage:
        answer = await early(stage)
        stage.lender.abort("a", StartFailed("exit code 1"))
        (event,) = events(await answer.read())

    assert json.loads(event.removeprefix(b"data: "))["error"]["message"] == "exit code 1"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (whole(b'{"error":\n{"message":"no\\nroom"}}', status="400 Bad"), "no\nroom"),
        (whole(b"<html>oops", status="500 Oops"), "model 'a' answered 500 and no event stream"),
        (whole(b'{"choices":[]}'), "model 'a' answered 200 and no event stream"),
        (whole(b"x" * 100_000, status="503 Busy")[:-10], "model 'a' answered 503"),
    ],
    ids=["its error", "text", "no stream", "endless"],
)
async def test_what_is_no_stream_ends_a_waiting_one_with_an_event(
    said: bytes, message: str
) -> None:
    """The upstream's own error object where there is one."""
    async with staged(saying(said), up=False, ping_s=PING_S) as stage:
        answer = await early(stage)
        stage.put_up()
        (event,) = events(await answer.read())

    assert message in json.loads(event.removeprefix(b"data: "))["error"]["message"]


async def test_a_late_head_is_waited_for_with_company_too() -> None:
    """The model is up and says nothing for long: the client hears pings, and then the stream."""

    pinged = asyncio.Event()

    async def script(_: Received, line: Line) -> None:
        await pinged.wait()
        await line.say(STREAM_HEAD)
        await line.chunk(b"data: 1\n\n")
        await line.say(b"0\r\n\r\n")

    async with staged(script, ping_s=PING_S) as stage:
        answer = await early(stage)
        pinged.set()
        assert events(await answer.read()) == [b"data: 1"]


@pytest.mark.parametrize("was_used", [False, True], ids=["fresh", "used"])
async def test_a_death_before_the_late_head_ends_the_stream_with_an_event(was_used: bool) -> None:
    """Whether its connection was a fresh one, or one that is tried again: one event, no more."""
    pinged = asyncio.Event()

    async def script(received: Received, line: Line) -> None:
        if received.json.get("stream") is not True:
            return await say_ok(received, line)
        await pinged.wait()
        line.drop()

    async with staged(script, ping_s=PING_S) as stage:
        if was_used:
            await stage.text()
        answer = await early(stage)
        pinged.set()
        (event,) = events(await answer.read())

    message = json.loads(event.removeprefix(b"data: "))["error"]["message"]
    assert "model 'a' gave no answer" in message


async def test_an_abort_between_two_tries_of_a_waiting_stream_is_its_end() -> None:
    """The client was told of it, so that the second try must not be made."""
    pinged = asyncio.Event()

    async def script(received: Received, line: Line) -> None:
        if received.json.get("stream") is not True:
            return await say_ok(received, line)
        await pinged.wait()
        line.drop()
        stage.lender.abort("a", UpstreamLost("exit code 139"))

    async with staged(script, ping_s=PING_S) as stage:
        await stage.text()
        answer = await early(stage)
        pinged.set()
        (event,) = events(await answer.read())
        assert len(stage.server.received) == 2

    assert json.loads(event.removeprefix(b"data: "))["error"]["message"] == "exit code 139"


# ---- the model's name --------------------------------------------------------------------------

RENAMED = ModelConfig(cmd="serve a", response_model_name="requested", aliases=("outer",))


async def test_u90_the_answer_names_the_model_as_asked() -> None:
    """In JSON and in streams, and only where the configuration wants it."""
    body = b'{"id":1, "model":"inner"}'
    stream = saying(
        STREAM_HEAD, b'19\r\ndata: {"model":"inner"}\r\n\r\n', b"2\r\n\n\n\r\n0\r\n\r\n"
    )
    async with staged(saying(whole(body)), model=RENAMED) as stage:
        assert await stage.text(b'{"model":"outer"}') == '{"id":1, "model":"outer"}'
        assert stage.received["accept-encoding"] == "identity"
        stage.server.script = stream
        text = await stage.text(b'{"model":"outer","stream":true}')
        assert text.replace(": ping\n\n", "") == 'data: {"model":"outer"}\r\n\n\n'

    async with staged(saying(whole(body)), aliases=("outer",)) as stage:
        assert await stage.text(b'{"model":"outer"}') == body.decode()


async def test_other_kinds_of_answers_keep_their_bytes() -> None:
    """Sound isn't searched for names, nor held back."""
    sound = bytes(range(256))
    script = saying(whole(sound, content_type="audio/wav"))
    async with staged(script, model=RENAMED) as stage, stage.ask(path="/v1/audio/speech") as answer:
        assert await answer.read() == sound
        assert answer.headers["Content-Length"] == "256"
