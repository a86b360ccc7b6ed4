"""Switches of protocols: bytes both ways, and who counts as a user of the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from llmsnap.config.schema import Compat, ModelConfig
from llmsnap.errors import ModelUnloaded
from llmsnap.web.frames import GOING_AWAY
from tests.helpers.flow import go_on, hold, stands_still
from tests.helpers.waiting import eventually
from tests.web.scripted import Line, Received, whole
from tests.web.stage import PING_S, Stage, staged

SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %b\r\n"
    b"Sec-WebSocket-Accept: x\r\n\r\n"
)


async def echo(received: Received, line: Line) -> None:
    """A server that switches to what is asked for and sends everything back."""
    await line.say(SWITCH % received["upgrade"].encode(), b"hello")
    while data := await line.reader.read(65536):
        await line.say(data)


@asynccontextmanager
async def switched(
    stage: Stage, *, protocol: str = "websocket", tail: bytes = b""
) -> AsyncIterator[tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client who asks for a switch: the head of the answer, and the connection."""
    reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
    head = f"GET /upstream/a/ws?x=1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: {protocol}\r\n"
    writer.write(f"{head}Connection: keep-alive, Upgrade\r\n\r\n".encode() + tail)
    try:
        async with asyncio.timeout(30):
            yield await reader.readuntil(b"\r\n\r\n"), reader, writer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("protocol", ["websocket", "something/1"])
async def test_bytes_pass_both_ways(protocol: str) -> None:
    """Whatever the protocol; the switch is the server's own."""
    async with staged(echo) as stage, switched(stage, protocol=protocol) as (head, reader, writer):
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        assert f"Upgrade: {protocol}\r\n".encode() in head
        assert b"Sec-WebSocket-Accept: x\r\n" in head
        assert b"X-Llmsnap-Model: a\r\n" in head
        assert stage.received.target == "/ws?x=1"
        assert stage.received["connection"] == "Upgrade"
        assert await reader.readexactly(5) == b"hello"

        for message in (b"\x81\x05", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 4):
            writer.write(message)
            assert await reader.readexactly(len(message)) == message
        assert stage.lender.in_flight


async def test_what_the_client_sent_too_early_isnt_lost() -> None:
    """Some don't wait for the answer."""
    async with staged(echo) as stage, switched(stage, tail=b"early") as (_, reader, _w):
        assert await reader.readexactly(10) == b"helloearly"


async def test_a_client_who_leaves_ends_the_servers_connection() -> None:
    """And frees its place."""
    async with staged(echo) as stage:
        async with switched(stage):
            pass
        await eventually(lambda: stage.server.gone == 1)
        await stage.nobody_is_left()


async def test_a_server_that_ends_ends_the_clients_connection() -> None:
    """After all it said has arrived."""

    async def script(_: Received, line: Line) -> None:
        await line.say(SWITCH % b"websocket", b"x" * 100_000)
        line.writer.close()

    async with staged(script) as stage, switched(stage) as (_, reader, _w):
        assert len(await reader.read(-1)) == 100_000


async def test_a_model_that_goes_ends_both() -> None:
    """An unload doesn't wait for a socket that nobody closes."""
    async with staged(echo) as stage, switched(stage) as (_, reader, _w):
        await reader.readexactly(5)
        stage.lender.abort("a", ModelUnloaded("gone"))
        assert await reader.read() == b""
        await eventually(lambda: stage.server.gone == 1)


async def test_a_refused_switch_is_an_answer_like_any_other() -> None:
    """And the connection serves the next request."""

    async def script(_: Received, line: Line) -> None:
        await line.say(whole(b"no", status="403 No"))

    async with staged(script) as stage, switched(stage) as (head, reader, writer):
        assert head.startswith(b"HTTP/1.1 403 No\r\n")
        assert await reader.readexactly(2) == b"no"
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "in a waiting stream"])
async def test_a_switch_that_nobody_asked_for_is_a_502(waits: bool) -> None:
    """No second head in a stream that has begun, and no tunnel to a client who knows of none."""
    go_on = asyncio.Event()
    if not waits:
        go_on.set()

    async def script(_: Received, line: Line) -> None:
        await go_on.wait()
        await line.say(SWITCH % b"h2c")

    ask = b'{"model":"a","stream":true}'
    ping_s = PING_S if waits else 3600
    async with staged(script, ping_s=ping_s) as stage, stage.ask(ask) as answer:
        assert answer.status == (200 if waits else 502)
        go_on.set()
        text = await answer.text()
        assert "switches protocols unasked" in text
        assert "HTTP/1.1" not in text


async def test_a_slow_client_slows_the_server_down() -> None:
    """Memory is bounded: the server stops until the client reads, then all arrives."""
    sent = 0

    async def script(_: Received, line: Line) -> None:
        nonlocal sent
        await line.say(SWITCH % b"websocket")
        for _n in range(400):
            await line.say(b"x" * 65536)
            sent += 65536
        line.writer.close()

    async with staged(script) as stage, switched(stage) as (_, reader, writer):
        hold(writer)
        assert await stands_still(lambda: sent) < 400 * 65536
        go_on(writer)
        assert len(await reader.read(-1)) == 400 * 65536


async def test_a_slow_server_slows_the_client_down() -> None:
    """The other way round."""
    awake = asyncio.Event()
    taken = 0

    async def script(_: Received, line: Line) -> None:
        nonlocal taken
        hold(line.writer)
        await line.say(SWITCH % b"websocket")
        await awake.wait()
        go_on(line.writer)
        while data := await line.reader.read(2**20):
            taken += len(data)

    async with staged(script) as stage, switched(stage) as (_, _r, writer):
        for _n in range(400):
            writer.write(b"x" * 65536)
        draining = asyncio.ensure_future(writer.drain())
        await stands_still(writer.transport.get_write_buffer_size)
        assert not draining.done()
        awake.set()
        await draining
        writer.close()
        await eventually(lambda: taken == 400 * 65536)


IGNORING = ModelConfig(cmd="serve a", compat=Compat(ignore_websockets=True))


async def test_ignored_websockets_dont_count() -> None:
    """With `compat.ignoreWebsockets` they take no lease."""
    async with staged(echo, model=IGNORING) as stage, switched(stage) as (_, reader, _w):
        assert await reader.readexactly(5) == b"hello"
        assert stage.lender.arrived == []


async def test_ignored_websockets_load_nothing() -> None:
    """409 unless the model is up."""
    async with staged(echo, model=IGNORING, up=False) as stage, switched(stage) as (head, _r, _w):
        assert head.startswith(b"HTTP/1.1 409 ")
        assert stage.lender.arrived == []


async def test_a_proxy_that_ends_says_goodbye() -> None:
    """With 1001, and at once; nobody is left."""

    async def script(_: Received, line: Line) -> None:
        await line.say(SWITCH % b"websocket", b"\x81\x02hi")
        await line.reader.read()

    async with staged(script) as stage:
        async with switched(stage) as (_, reader, _w):
            assert await reader.readexactly(4) == b"\x81\x02hi"
            stage.proxy.hang_up()
            assert await reader.read() == GOING_AWAY
        await stage.nobody_is_left()


async def test_no_frame_is_cut_by_a_goodbye() -> None:
    """What has begun is finished, and nothing follows."""
    go_on_sending = asyncio.Event()

    async def script(_: Received, line: Line) -> None:
        await line.say(SWITCH % b"websocket", b"\x81\x05he")
        await go_on_sending.wait()
        await line.say(b"llo\x81\x03wor")

    async with staged(script) as stage, switched(stage) as (_, reader, _w):
        assert await reader.readexactly(4) == b"\x81\x05he"
        stage.proxy.hang_up()
        go_on_sending.set()
        assert await reader.read() == b"llo" + b"\x81\x03wor" + GOING_AWAY


async def test_other_protocols_end_in_their_own_time() -> None:
    """Nobody knows how to tell them."""
    async with staged(echo) as stage, switched(stage, protocol="other/1") as (_, reader, writer):
        assert await reader.readexactly(5) == b"hello"
        stage.proxy.hang_up()
        writer.write(b"still there")
        assert await reader.readexactly(11) == b"still there"
