"""Asking a model's server, and asking again where the first connection was dead."""

from __future__ import annotations

import asyncio
import io

import pytest

from llmsnap.config.schema import ModelConfig
from llmsnap.errors import UpstreamLost
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually
from tests.web.scripted import STREAM_HEAD, Line, Received, say_ok, whole
from tests.web.stage import CHAT, staged


async def test_connections_are_used_again() -> None:
    """Request after request on one connection."""
    async with staged() as stage:
        for _ in range(5):
            await stage.text()

        assert len(stage.server.lines) == 1
        assert len(stage.server.received) == 5


async def test_requests_at_once_have_connections_of_their_own() -> None:
    """No request waits for another one's answer."""

    async def script(_: Received, line: Line) -> None:
        await eventually(lambda: len(stage.server.received) == 8)
        await line.say(whole(b"{}"))

    async with staged(script) as stage:
        await asyncio.gather(*(stage.text() for _ in range(8)))

        assert len(stage.server.lines) == 8


async def test_a_dead_connection_is_replaced() -> None:
    """The server closes as the next request comes: it is sent once more, and answered."""

    async def once_a_connection(received: Received, line: Line) -> None:
        if line.reader.at_eof() or len(used.setdefault(line, [])) > 0:
            line.reset()
            return
        used[line].append(received)
        await say_ok(received, line)

    used: dict[Line, list[Received]] = {}
    async with staged(once_a_connection) as stage:
        for _ in range(3):
            assert await stage.text() == '{"ok":true}'

        assert len(stage.server.received) == 5  # two of them in vain
        assert len(used) == 3


async def test_a_fresh_connection_that_breaks_is_an_error() -> None:
    """The request isn't sent a third time, nor twice to a server that just broke."""

    async def script(_: Received, line: Line) -> None:
        line.drop()

    async with staged(script) as stage:
        async with stage.ask() as answer:
            assert answer.status == 502
            assert answer.headers["Retry-After"] == "1"
            message = (await answer.json())["error"]["message"]
        assert "model 'a' gave no answer" in message
        assert len(stage.server.received) == 1


async def test_an_answer_that_has_begun_is_not_asked_for_again() -> None:
    """A used connection that breaks in the middle of its answer cuts it."""
    async with staged() as stage:
        await stage.text()

        async def script(_: Received, line: Line) -> None:
            await line.say(STREAM_HEAD)
            await line.chunk(b"data: 1\n\n")
            line.drop()

        stage.server.script = script
        assert '"error"' in await stage.text()
        assert len(stage.server.received) == 2


async def test_a_body_that_comes_as_it_is_sent_gets_a_fresh_connection() -> None:
    """It couldn't be sent twice."""
    async with staged() as stage:
        await stage.text()
        body = b"x" * 200_000
        async with stage.ask(body, "/upstream/a/upload") as answer:
            assert answer.status == 200

        assert stage.received.body == body
        assert len(stage.server.lines) == 2


async def test_a_refused_connection_is_502_with_the_envelope() -> None:
    """The error says where the model was looked for."""
    async with staged() as stage:
        port = free_port()
        stage.lender.put_up("a", port)
        async with stage.ask() as answer:
            assert answer.status == 502
            error = await answer.json()

    assert error["src"] == "llmsnap"
    assert str(port) in error["error"]["message"]


@pytest.mark.parametrize(("check", "told"), [("/health", [("a", 1)]), ("none", [])])
async def test_a_server_that_doesnt_listen_any_more_is_told_of(
    check: str, told: list[tuple[str, int]]
) -> None:
    """Unless it never said that it would: then it may not listen yet."""
    async with staged(model=ModelConfig(cmd="serve a", check_endpoint=check)) as stage:
        stage.lender.put_up("a", free_port())
        async with stage.ask() as answer:
            assert answer.status == 502
            assert answer.headers["Retry-After"] == "1"

        assert stage.lender.deafened == told


async def test_a_server_that_dies_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its runner says comes first."""
    monkeypatch.setattr("llmsnap.web.serving._NEWS_S", 60.0)
    async with staged() as stage:
        stage.lender.put_up("a", free_port())
        asking = asyncio.ensure_future(stage.site.ask(CHAT, method="POST", data=b'{"model":"a"}'))
        await eventually(lambda: bool(stage.lender.in_flight))
        stage.lender.abort("a", UpstreamLost("a is gone"))
        answer = await asking

        assert (answer.status, answer.message) == (502, "a is gone")
        assert stage.lender.deafened == []


async def test_an_answer_may_come_before_the_whole_body_was_sent() -> None:
    """A server that refuses what it doesn't want to read is heard at once."""

    async def script(_: Received, line: Line) -> None:
        raise AssertionError("the body never comes whole")

    refused = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(whole(b"too large", status="413 No"))
        await writer.drain()
        await refused.wait()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with staged(script) as stage, server:
        stage.lender.put_up("a", server.sockets[0].getsockname()[1])
        async with stage.ask(io.BytesIO(b"x" * 30_000_000), "/upstream/a/upload") as answer:
            assert answer.status == 413
            assert await answer.read() == b"too large"
        refused.set()


async def test_a_new_generation_gets_new_connections() -> None:
    """None of its predecessor's."""
    async with staged() as stage:
        await stage.text()
        stage.put_down()
        await eventually(lambda: stage.server.gone == 1)
        stage.put_up(generation=2)
        await stage.text()

        assert len(stage.server.lines) == 2
