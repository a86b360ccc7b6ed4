"""What isn't HTTP, what is too much of it, and connections that never ask for anything."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
from aiohttp import web

from llmsnap.web import connection
from llmsnap.web.connection import Listener, connection_limit
from tests.helpers.waiting import eventually
from tests.web.fleet import config_of, front_of
from tests.web.handclock import HandClock
from tests.web.serving import Site, serving

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@asynccontextmanager
async def front() -> AsyncIterator[Site]:
    """The whole application over one model that is never up."""
    async with serving(front_of(config_of("a"))) as site:
        yield site


def error_in(said: bytes) -> tuple[int, dict[str, Any]]:
    """Status and error object of an answer, which must end its connection."""
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower() or head.startswith(b"HTTP/1.0")
    assert b"content-type: application/json" in head.lower()
    error: dict[str, Any] = json.loads(body)["error"]
    return int(head.split()[1]), error


@pytest.mark.parametrize(
    "sent",
    [
        b"hello there\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /health HTTP/1.1\r\nHost: a\r\nno colon here\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /health HTTP/9.9\r\nHost: a\r\n\r\n",
        HEAD + b"X: a\x00b\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
    ],
    ids=[
        "no request line", "tls", "no colon", "two hosts", "version", "nul", "length",
        "negative length", "both framings", "two lengths", "unknown coding",
    ],
)  # fmt: skip
async def test_what_isnt_http_is_a_400_in_our_form(sent: bytes) -> None:
    """With the reason, and the connection closed, because nobody knows what comes next on it."""
    async with front() as site:
        status, error = error_in(await site.exchange(sent))

    assert status == 400
    assert error["code"] == "bad_request"
    assert error["message"].startswith("this isn't valid HTTP: ")


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"X-Long: " + b"x" * 200_000 + b"\r\n\r\n",
        HEAD + b"".join(b"X-%d: %b\r\n" % (n, b"x" * 2000) for n in range(100)) + b"\r\n",
        HEAD + b"".join(b"X-%d: 1\r\n" % n for n in range(300)) + b"\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        HEAD + b"X-" + b"n" * 200_000 + b": 1\r\n\r\n",
    ],
    ids=["one header", "many long headers", "many headers", "path", "name"],
)
async def test_a_head_of_200_kb_is_a_431(sent: bytes) -> None:
    """However it is spread; the message says what the limits are."""
    async with front() as site:
        status, error = error_in(await site.exchange(sent))

    assert status == 431
    assert "65536" in error["message"]


async def test_a_head_that_grows_slowly_is_a_431_too() -> None:
    """Bytes count, not chunks; nothing of it is kept."""
    async with front() as site:
        reader, writer = await asyncio.open_connection(site.host, site.port)
        writer.write(HEAD)
        for n in range(40):
            writer.write(b"X-%d: %b\r\n" % (n, b"x" * 2000))
            await writer.drain()
            await asyncio.sleep(0)
        status, _ = error_in(await reader.read())
        writer.close()

    assert status == 431


async def test_heads_of_many_requests_on_one_connection_dont_add_up() -> None:
    """The limit is on each head: keep-alive and large bodies are no matter."""
    padding = b"X-Pad: " + b"x" * 20_000 + b"\r\n"
    body = b"y" * 300_000
    post = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with front() as site:
        said = await site.exchange(
            (HEAD + padding + b"\r\n") * 10
            + post + body
            + HEAD + padding + b"Connection: close\r\n\r\n"
        )  # fmt: skip

    assert said.count(b"HTTP/1.1 200 OK") == 11
    assert said.count(b"HTTP/1.1 405 ") == 1


async def test_a_connection_that_asks_for_nothing_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Silent from the start, in the middle of a head, or after an answer."""
    monkeypatch.setattr(connection, "IDLE_S", 1.0)
    clock = HandClock()
    clock.keeps(monkeypatch, "express")  # the others are aiohttp's
    async with front() as site:
        silent = asyncio.ensure_future(site.exchange(b""))
        half, served = await asyncio.gather(site.exchange(HEAD), site.exchange(HEAD + b"\r\n"))
        clock.advance(1.0)

        assert await silent == half == b""
    assert served.startswith(b"HTTP/1.1 200 OK")


async def test_1000_slow_connections_cost_little_and_hinder_nobody() -> None:
    """Each sends half a head and waits; others are served, and memory stays in bounds."""
    slow: list[socket.socket] = []
    process = psutil.Process()
    async with front() as site:
        before = process.memory_info().rss
        try:
            for _ in range(1000):
                client = socket.create_connection((site.host, site.port))
                slow.append(client)
                client.send(HEAD)
                if len(slow) % 50 == 0:
                    await asyncio.sleep(0)
            answer = await site.ask("/health")
            grown = process.memory_info().rss - before
        finally:
            for client in slow:
                client.close()

    assert answer.status == 200
    assert grown < 64 * 1024**2


async def test_over_the_limit_the_longest_idle_connection_makes_room() -> None:
    """Whoever is being served stays, and so does who came last."""
    asked, release = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        asked.set()
        await release.wait()
        return web.Response(text="served")

    app = web.Application()
    app.router.add_get("/slow", slow)
    runner = web.AppRunner(app)
    await runner.setup()
    assert runner.server is not None
    listener = Listener(runner.server, limit=2)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(listener, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        busy, busy_in = await asyncio.open_connection(host, port)
        busy_in.write(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        await asked.wait()
        idle, idle_in = await asyncio.open_connection(host, port)
        await eventually(lambda: any(each.is_waiting for each in listener.connections))
        last, last_in = await asyncio.open_connection(host, port)

        assert await idle.read() == b""
        release.set()
        assert b"served" in await busy.readuntil(b"served")
        last_in.write(b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert b"served" in await last.read()
        for writer in (busy_in, idle_in, last_in):
            writer.close()
    finally:
        server.close()
        await runner.cleanup()


def test_the_limit_leaves_files_for_upstreams() -> None:
    """At most half of what the system lets us open."""
    assert 16 <= connection_limit() <= connection.MAX_CONNECTIONS


async def test_a_client_that_leaves_cancels_its_request() -> None:
    """aiohttp's default is to go on, which would keep a place in the queue for nobody."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def waits(_: web.Request) -> web.Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    app = web.Application()
    app.router.add_get("/", waits)
    async with serving(app) as site:
        _, writer = await asyncio.open_connection(site.host, site.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await begun.wait()
        writer.close()
        await asyncio.wait_for(cancelled.wait(), 30)


async def test_bodies_reach_the_handler_as_they_were_sent() -> None:
    """A compressed body isn't unpacked on the way: what goes upstream must match its headers."""
    seen = []

    async def keeps(request: web.Request) -> web.Response:
        seen.append(await request.content.read())
        return web.Response()

    app = web.Application()
    app.router.add_post("/", keeps)
    async with serving(app) as site:
        await site.ask("/", method="POST", headers={"Content-Encoding": "gzip"}, data=b"\x1f\x8b!")

    assert seen == [b"\x1f\x8b!"]


async def test_an_error_outside_the_application_is_a_500_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What fails before or after the middlewares is told in our form as well."""

    async def fails(_: web.Request) -> web.Response:
        raise ZeroDivisionError("secret")

    app = web.Application()
    app.router.add_get("/", fails)
    async with serving(app) as site:
        answer = await site.ask("/")

    assert answer.status == 500
    assert answer.message == "internal error; the log says more"
    assert "ZeroDivisionError: secret" in caplog.text
