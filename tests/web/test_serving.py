"""One request from its place in the queue to the end of its answer."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import Timeouts
from llmsnap.core.lifecycle import State
from llmsnap.errors import ConcurrencyLimited, ModelUnloaded, StartFailed, UpstreamLost
from llmsnap.runtime.tasks import Background
from llmsnap.web.body import HeldBody
from llmsnap.web.serving import _cause
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually
from tests.web.handclock import HandClock
from tests.web.lender import FakeLender
from tests.web.scripted import STREAM_HEAD, Line, Received, Script, whole
from tests.web.stage import CHAT, Stage, read_until, staged

STREAM = b'{"model":"a","stream":true}'


async def say_nothing(_: Received, line: Line) -> None:
    """A server that hangs until its client leaves."""
    await line.gone()


async def stream_for_ever(_: Received, line: Line) -> None:
    """A server that talks until its client leaves."""
    await line.say(STREAM_HEAD)
    while not line.over.is_set():
        await line.chunk(b"data: x\n\n")
        await asyncio.sleep(0.01)


async def one_event(_: Received, line: Line) -> None:
    """A server that falls silent after an event."""
    await line.say(STREAM_HEAD)
    await line.chunk(b"data: x\n\n")
    await line.gone()


# ---- clients that leave ------------------------------------------------------------------------


@asynccontextmanager
async def client(stage: Stage, body: bytes = STREAM) -> AsyncIterator[asyncio.StreamReader]:
    """A raw client that leaves at the end of the block."""
    reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    try:
        yield reader
    finally:
        writer.transport.abort()


async def test_u53_a_client_who_leaves_the_queue_frees_its_place() -> None:
    """The model never hears of it."""
    async with staged(up=False) as stage:
        async with client(stage):
            await eventually(lambda: bool(stage.lender.waiting))
        await stage.nobody_is_left()

        assert stage.server.lines == []


@pytest.mark.parametrize("script", [say_nothing, one_event, stream_for_ever])
async def test_u51_u54_the_server_sees_the_client_leave(script: Script) -> None:
    """Before the first byte, in a silence, and mid-stream."""
    async with staged(script) as stage:
        async with client(stage) as reader:
            await eventually(lambda: len(stage.server.received) == 1)
            if script is not say_nothing:
                await reader.readuntil(b"data: x\n\n")
        await eventually(lambda: stage.server.gone == 1)
        await stage.nobody_is_left()


@pytest.mark.parametrize("size", [100_000, 3_000_000, 30_000_000])
async def test_u53_a_client_who_leaves_within_its_upload_is_noticed(size: int) -> None:
    """Though most of what it sent waits in the socket, and the news that it left behind that."""
    async with staged(up=False) as stage:
        _, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        head = b"POST /upstream/a/upload HTTP/1.1\r\nHost: localhost\r\n"
        writer.write(head + b"Content-Length: 50000000\r\n\r\n" + b"x" * size)
        await eventually(lambda: bool(stage.lender.waiting))
        await asyncio.sleep(0.1)
        writer.close()
        writer.transport.abort()

        await eventually(lambda: not stage.lender.waiting, timeout_s=40)
        assert stage.server.lines == []


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[HeldBody]:
    """The bodies of waiting clients: some is taken of them at once, and soon goes to a file."""
    bodies: list[HeldBody] = []
    listen = HeldBody.listen

    def noted(body: HeldBody, background: Background) -> None:
        bodies.append(body)
        listen(body, background)

    monkeypatch.setattr(HeldBody, "listen", noted)
    monkeypatch.setattr("llmsnap.web.body._LISTEN_S", 0.001)
    monkeypatch.setattr("llmsnap.web.body.MEMORY_BYTES", 1_000_000)
    return bodies


async def test_what_was_taken_of_a_waiting_upload_arrives_with_the_rest(
    heard: list[HeldBody],
) -> None:
    """In order and once, also what went to a file meanwhile."""
    body = bytes(n % 251 for n in range(9_000_000))
    async with staged(up=False) as stage:
        asked = asyncio.ensure_future(
            stage.ask(io.BytesIO(body), "/upstream/a/upload").__aenter__()
        )
        await eventually(lambda: bool(heard) and heard[0].size > 3_000_000)
        stage.put_up()
        assert (await asked).status == 200
        assert stage.received.body == body


async def test_an_upload_that_is_too_large_is_told_though_it_waited(heard: list[HeldBody]) -> None:
    """What was found while it waited isn't forgotten."""
    config = Config(models={"a": ModelConfig(cmd="serve a")}, max_body_bytes=1_000_000)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 100_000

    async with staged(config=config, up=False) as stage:
        asked = asyncio.ensure_future(
            stage.site.session.post("/upstream/a/upload", data=pieces()).__aenter__()
        )
        await eventually(lambda: bool(heard) and heard[0]._trouble is not None)
        stage.put_up()
        assert (await asked).status == 413


async def test_u55_a_half_closed_connection_counts_as_left() -> None:
    """Nobody who waits for an answer closes its sending side."""
    async with staged(say_nothing) as stage:
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n"
            b'{"model":"a"}'
        )
        await eventually(lambda: len(stage.server.received) == 1)
        writer.write_eof()
        await eventually(lambda: stage.server.gone == 1)

        assert await reader.read() == b""
        writer.close()


async def test_u49_a_hundred_clients_that_leave_leave_nothing() -> None:
    """Half of them while the model loads, half after the first event."""
    async with staged(stream_for_ever, up=False, ping_s=0.02) as stage:
        tasks = len(asyncio.all_tasks())

        async def leave(number: int) -> None:
            async with client(stage) as reader:
                end = b": ping\n\n" if number % 2 else b"data: x\n\n"
                await reader.readuntil(end)

        leaving = [asyncio.ensure_future(leave(number)) for number in range(100)]
        await eventually(lambda: len(stage.lender.arrived) == 100)
        await eventually(lambda: len(stage.lender.waiting) == 50)
        stage.put_up()
        await asyncio.gather(*leaving)

        await stage.nobody_is_left()
        await eventually(lambda: stage.server.gone == len(stage.server.lines))
        assert len(stage.server.lines) == 50
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks + 1)


DRAIN = ModelConfig(cmd="serve a", on_client_disconnect="drain")


async def test_a_model_may_finish_what_it_was_asked() -> None:
    """With `onClientDisconnect: drain` the place is held until the answer is whole."""
    go_on = asyncio.Event()
    finished = asyncio.Event()

    async def script(_: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        await line.chunk(b"data: x\n\n")
        await go_on.wait()
        for _n in range(100):
            await line.chunk(b"data: " + b"y" * 10_000 + b"\n\n")
        await line.say(b"0\r\n\r\n")
        finished.set()

    async with staged(script, model=DRAIN) as stage:
        async with client(stage) as reader:
            await reader.readuntil(b"data: x\n\n")
        await asyncio.sleep(0.05)
        assert stage.lender.in_flight
        go_on.set()
        await finished.wait()
        await stage.nobody_is_left()

        assert stage.server.gone == 0  # the connection is kept for others


async def test_draining_is_for_answers_alone() -> None:
    """Who leaves the queue is gone."""
    async with staged(model=DRAIN, up=False) as stage:
        async with client(stage):
            await eventually(lambda: bool(stage.lender.waiting))
        await stage.nobody_is_left()


async def test_errors_reach_clients_of_draining_models() -> None:
    """As they reach those of others."""
    async with staged(model=DRAIN) as stage:
        stage.lender.refusal = StartFailed("exit code 3")
        async with stage.ask() as answer:
            assert answer.status == 502
        stage.lender.refusal = None
        assert await stage.text() == '{"ok":true}'


# ---- the scheduler says no, or no longer -------------------------------------------------------


async def test_u21_u22_the_limit_is_told_before_any_byte_of_a_stream() -> None:
    """A 429 as JSON, with `Retry-After`."""
    async with staged(up=False) as stage:
        stage.lender.refusal = ConcurrencyLimited("too many requests")
        async with stage.ask(STREAM) as answer:
            assert answer.status == 429
            assert answer.headers["Retry-After"] == "1"
            assert (await answer.json())["error"]["code"] == "concurrency_limit"


async def test_an_abort_before_the_answer_is_its_answer() -> None:
    """The server that hangs is let go."""
    async with staged(say_nothing) as stage:
        asked = asyncio.ensure_future(stage.ask().__aenter__())
        await eventually(lambda: len(stage.server.received) == 1)
        stage.lender.abort("a", ModelUnloaded("model 'a' was unloaded"))
        answer = await asked

        assert answer.status == 503
        assert "unloaded" in (await answer.json())["error"]["message"]
        await eventually(lambda: stage.server.gone == 1)


async def test_an_abort_of_a_stream_is_its_last_event() -> None:
    """One error, no `[DONE]`, and the body ends in order."""
    async with staged(one_event, ping_s=60) as stage, stage.ask(STREAM) as answer:
        await read_until(answer, b"\n\n")
        stage.lender.abort("a", ModelUnloaded("model 'a' was unloaded"))
        rest = await answer.read()

    error = json.loads(rest.removeprefix(b"data: "))
    assert error["error"]["message"] == "model 'a' was unloaded"


async def test_an_abort_of_another_answer_cuts_it() -> None:
    """There is no form in which to say why."""

    async def script(_: Received, line: Line) -> None:
        await line.say(whole(b"x" * 100)[:-50])
        await line.gone()

    async with staged(script) as stage, stage.ask() as answer:
        await answer.content.readexactly(50)
        stage.lender.abort("a", ModelUnloaded("gone"))
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


# ---- servers that die --------------------------------------------------------------------------


async def test_u45_p52_a_death_mid_stream_doesnt_look_like_an_end() -> None:
    """One error event; half an event before it is ended first; the proxy lives on."""

    async def script(_: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        await line.chunk(b"data: 1\n\ndata: ha")
        line.drop()

    async with staged(script) as stage:
        parts = (await stage.text(STREAM)).split("\n\n")
        assert parts[:2] == ["data: 1", "data: ha"]
        assert (
            "broke its answer off"
            in json.loads(parts[2].removeprefix("data: "))["error"]["message"]
        )
        assert parts[3:] == [""]


@pytest.mark.parametrize(
    "head",
    [
        whole(b"x" * 100)[:-50],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n32\r\n" + b"x" * 50,
    ],
    ids=["length", "chunks"],
)
async def test_other_answers_are_cut(head: bytes) -> None:
    """So that no client takes half an answer for a whole one."""

    async def script(_: Received, line: Line) -> None:
        await line.say(head)
        line.drop()

    async with staged(script) as stage, stage.ask() as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


@pytest.fixture
def news_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why a server is gone is waited for as long as a busy machine may take to tell it."""
    monkeypatch.setattr("llmsnap.web.serving._NEWS_S", 60.0)


@pytest.mark.usefixtures("news_may_be_late")
async def test_the_reason_of_a_death_is_told() -> None:
    """What the runner knows comes a moment later than the end of the connection."""

    async def script(_: Received, line: Line) -> None:
        line.drop()
        await asyncio.sleep(0.03)
        stage.lender.abort("a", UpstreamLost("model 'a' ended with exit code 139"))

    async with staged(script) as stage, stage.ask() as answer:
        assert answer.status == 502
        assert "exit code 139" in (await answer.json())["error"]["message"]


@pytest.mark.usefixtures("news_may_be_late")
async def test_the_reason_of_a_death_is_told_where_nobody_listens_any_more() -> None:
    """A request on a used connection is tried once more, and then it is refused."""
    async with staged(up=False) as stage:
        stage.lender.put_up("a", free_port())
        asked = asyncio.ensure_future(stage.ask().__aenter__())
        await eventually(lambda: bool(stage.lender.in_flight))
        stage.lender.abort("a", UpstreamLost("model 'a' ended with exit code 139"))

        assert "exit code 139" in (await (await asked).json())["error"]["message"]


async def test_news_of_a_death_may_come_as_they_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever brings them mustn't fail, and they are told."""
    monkeypatch.setattr("llmsnap.web.serving._NEWS_S", 0.0)
    lease = FakeLender().lease("a")
    asking = asyncio.ensure_future(_cause(lease, UpstreamLost("gave no answer")))
    for _ in range(2):  # it waits; then its time is up, of which it hasn't heard yet
        await asyncio.sleep(0)
    lease.abort(UpstreamLost("exit code 139"))

    assert str(await asking) == "exit code 139"


# ---- limits ------------------------------------------------------------------------------------


async def test_u42_a_limit_on_the_header_is_opt_in() -> None:
    """`timeouts.responseHeader` ends the wait with a 504 that names it."""
    slow = ModelConfig(cmd="serve a", timeouts=Timeouts(response_header=1))
    async with staged(say_nothing, model=slow) as stage, stage.ask() as answer:
        assert answer.status == 504
        assert "responseHeader" in (await answer.json())["error"]["message"]


async def test_the_limit_on_the_header_isnt_one_on_the_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What has begun may take as long as it likes."""
    clock, go_on = HandClock(), asyncio.Event()
    clock.keeps_patience(monkeypatch)
    slow = ModelConfig(cmd="serve a", timeouts=Timeouts(response_header=1))

    async def script(_: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        await go_on.wait()
        await line.chunk(b"data: 1\n\n")
        await line.say(b"0\r\n\r\n")

    async with staged(script, model=slow, ping_s=60) as stage, stage.ask(STREAM) as answer:
        assert [alarm.at for alarm in clock.alarms] == [1]
        clock.advance(5)
        go_on.set()
        assert await answer.text() == "data: 1\n\n"


STALLING = ModelConfig(cmd="serve a", stall_timeout_s=0.2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """What pings and the limit on a silence go by."""
    clock = HandClock()
    clock.keeps(monkeypatch, "sse", "patience")
    return clock


async def test_u34_a_server_that_says_nothing_is_given_up() -> None:
    """The client hears of `stallTimeout`, the supervisor of the process."""
    async with staged(say_nothing, model=STALLING) as stage, stage.ask() as answer:
        assert answer.status == 504
        assert "stallTimeout" in await answer.text()
        assert stage.lender.ended == [("a", 1)]


async def test_u34_a_server_that_falls_silent_is_given_up(clock: HandClock) -> None:
    """Its stream ends with an event that says so; every byte before that counted."""
    pieces = asyncio.Queue[bytes]()

    async def script(_: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        while piece := await pieces.get():
            await line.chunk(piece)

    async with staged(script, model=STALLING) as stage, stage.ask(STREAM) as answer:
        for _ in range(7):
            pieces.put_nowait(b"data: x\n\n")
            assert await read_until(answer, b"\n\n") == b"data: x\n\n"
            clock.advance(0.15)
        assert stage.lender.ended == []

        await asyncio.sleep(0.2)  # so long at least it must have been awake
        clock.advance(0.05)
        assert "stallTimeout" in await answer.text()
        assert stage.lender.ended == [("a", 1)]
        pieces.put_nowait(b"")


async def test_a_paused_model_isnt_stalled(clock: HandClock) -> None:
    """Put to sleep in the middle of its answer it goes on later; the client hears pings."""
    woken = asyncio.Event()

    async def script(_: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        await line.chunk(b"data: 1\n\n")
        await woken.wait()
        await line.chunk(b"data: 2\n\n")
        await line.say(b"0\r\n\r\n")

    async with staged(script, model=STALLING, ping_s=0.5) as stage, stage.ask(STREAM) as answer:
        await read_until(answer, b"data: 1\n\n")
        stage.put_down(state=State.SLEEPING)
        clock.advance(1)
        assert await read_until(answer, b"\n\n") == b": ping\n\n"
        stage.put_up()
        woken.set()

        assert (await answer.read()).endswith(b"data: 2\n\n")
        assert stage.lender.ended == []
