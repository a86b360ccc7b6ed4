"""The pace and the end of an answer on its way."""

from __future__ import annotations

import asyncio

import pytest

from llmsnap.errors import ModelUnloaded
from llmsnap.web.upstream import UpstreamConnection
from llmsnap.web.upstream_pool import Pool
from tests.helpers.flow import go_on, hold, stands_still
from tests.helpers.waiting import eventually
from tests.web.scripted import STREAM_HEAD, Line, Received, whole
from tests.web.stage import staged


async def test_a_slow_client_slows_the_server_down() -> None:
    """A large answer isn't held in memory while nobody takes it; all of it arrives."""
    sent = 0

    async def script(_: Received, line: Line) -> None:
        nonlocal sent
        await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 26214400\r\n\r\n")
        for _n in range(400):
            await line.say(b"x" * 65536)
            sent += 65536

    async with staged(script) as stage:
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(b"GET /upstream/a/file HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        hold(writer)
        assert await stands_still(lambda: sent) < 26214400
        go_on(writer)
        assert len(await reader.readexactly(26214400)) == 26214400
        writer.close()


async def test_the_next_answer_isnt_held_up_by_the_last_one() -> None:
    """Flow control begins anew with each request on a connection."""

    async def script(_: Received, line: Line) -> None:
        await line.say(whole(b"x" * 3_000_000))

    async with staged(script) as stage:
        for _ in range(5):
            async with stage.ask() as answer:
                assert len(await answer.read()) == 3_000_000

        assert len(stage.server.lines) == 1


async def test_an_abort_while_the_connection_is_made_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is sent to a model that was unloaded meanwhile."""
    connecting, go_on = asyncio.Event(), asyncio.Event()
    connect = Pool.connect

    async def slowly(pool: Pool) -> UpstreamConnection:
        connecting.set()
        await go_on.wait()
        return await connect(pool)

    monkeypatch.setattr(Pool, "connect", slowly)
    async with staged() as stage:
        asked = asyncio.ensure_future(stage.ask().__aenter__())
        await connecting.wait()
        stage.lender.abort("a", ModelUnloaded("model 'a' was unloaded"))
        go_on.set()

        assert (await asked).status == 503
        assert stage.server.received == []


async def test_a_client_who_left_is_noticed_while_it_is_slow() -> None:
    """The server that was held up for it is let go."""

    sent = 0

    async def script(_: Received, line: Line) -> None:
        nonlocal sent
        await line.say(b"HTTP/1.1 200 OK\r\n\r\n")
        while not line.over.is_set():
            await line.say(b"x" * 65536)
            sent += 65536

    async with staged(script) as stage:
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(b"GET /upstream/a/file HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        hold(writer)
        await stands_still(lambda: sent)
        writer.transport.abort()

        await eventually(lambda: stage.server.gone == 1)
        await stage.nobody_is_left()


async def test_a_very_fast_stream_arrives_whole() -> None:
    """It is read in fewer and larger pieces, and every event comes once and in order."""
    events = [b"data: %d\n\n" % n for n in range(5000)]

    async def script(_: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        for event in events:
            line.writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await asyncio.sleep(0)
        await line.say(b"0\r\n\r\n")

    async with staged(script, ping_s=60) as stage:
        assert await stage.text(b'{"model":"a","stream":true}') == b"".join(events).decode()


async def test_a_fast_stream_waits_for_a_slow_client() -> None:
    """As any other answer: its server is held up, and then all of it arrives."""
    sent = 0

    async def script(_: Received, line: Line) -> None:
        nonlocal sent
        await line.say(STREAM_HEAD)
        for _n in range(15_000):
            await line.chunk(b"data: " + b"x" * 4994)
            sent += 5000
        await line.say(b"0\r\n\r\n")

    async with staged(script, ping_s=60) as stage, stage.ask() as answer:
        assert await stands_still(lambda: sent) < 15_000 * 5000  # nobody reads yet
        assert (await answer.read()).count(b"data: ") == 15_000
