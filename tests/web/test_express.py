"""Connections that ask for inference in common form, and how others get them."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace

import psutil
import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.web import connection, express
from llmsnap.web.accesslog import AccessLog
from llmsnap.web.body import HeldBody
from llmsnap.web.connection import Listener, listening
from llmsnap.web.express import EXPRESS, ExpressConnection
from llmsnap.web.head import Head
from llmsnap.web.outbox import Outbox
from llmsnap.web.outlet import Outlet
from tests.helpers.flow import go_on, hold
from tests.helpers.waiting import eventually
from tests.web.fleet import config_of, front_of
from tests.web.handclock import HandClock
from tests.web.scripted import Line, Received, say_ok, whole
from tests.web.serving import serving
from tests.web.stage import CHAT, Stage, staged

BODY = b'{"model":"a"}'
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def post(body: bytes = BODY, *, path: str = CHAT, more: str = "") -> bytes:
    """A request of the common form."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


CLOSING = post(more="Connection: close\r\n")


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What aiohttp found on the connections that it was handed."""
    seen: list[bytes] = []
    hand_over = Listener.to_aiohttp

    def note(listener: Listener, given: ExpressConnection, data: bytes) -> None:
        seen.append(data)
        hand_over(listener, given, data)

    monkeypatch.setattr(Listener, "to_aiohttp", note)
    return seen


async def sent_in(stage: Stage, *pieces: bytes) -> bytes:
    """All that a client hears who sends those pieces, one after the other."""
    reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
    try:
        async with asyncio.timeout(30):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.01)
            return await reader.read()
    finally:
        writer.close()


async def test_inference_never_reaches_aiohttp(handed: list[bytes]) -> None:
    """One request after the other on the same connection, whatever they are answered."""
    async with staged() as stage:
        missing = post(b'{"model":"b"}')
        said = await stage.site.exchange(post() + missing + post(b"{no json") + post() + CLOSING)

    statuses = [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 404, 400, 200, 200]
    assert handed == []


@pytest.mark.parametrize(
    "pieces",
    [
        [CLOSING[:-3], CLOSING[-3:]],
        [CLOSING[: -len(BODY)], CLOSING[-len(BODY) :]],
        [post() + CLOSING[:-5], CLOSING[-5:]],
        [CLOSING[: -len(BODY)], *(BODY[n : n + 1] for n in range(len(BODY)))],
    ],
    ids=["cut", "body apart", "second one cut", "byte by byte"],
)
async def test_a_body_may_come_in_pieces(pieces: list[bytes], handed: list[bytes]) -> None:
    """Most clients send it apart from its head."""
    async with staged() as stage:
        said = await sent_in(stage, *pieces)

    assert said.endswith(b'{"ok":true}')
    assert handed == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (LAST, b"200"),
        (post(path="/v1/models", more="Connection: close\r\n"), b"405"),
        (post(path=f"{CHAT}?x=1", more="Connection: close\r\n"), b"200"),
        (post(b'{"model":"a","x":"%b"}' % (b"x" * 70_000), more="Connection: close\r\n"), b"200"),
        (CLOSING.replace(b"HTTP/1.1", b"HTTP/1.0"), b"200"),
        (CLOSING.replace(b"Content-Length", b"Content-Length: 3\r\nContent-Length"), b"400"),
        (CLOSING.replace(b"Host: localhost", b"Host: a\r\nHost: b"), b"400"),
        (
            CLOSING.replace(b"Content-Length: 13", b"Transfer-Encoding: chunked").replace(
                BODY, b"d\r\n" + BODY + b"\r\n0\r\n\r\n"
            ),
            b"200",
        ),
    ],
    ids=["get", "path", "query", "large", "old", "two lengths", "two hosts", "chunks"],
)
async def test_what_is_uncommon_is_aiohttps(
    sent: bytes, status: bytes, handed: list[bytes]
) -> None:
    """From its first byte on, and answered as ever."""
    async with staged() as stage:
        first = await stage.site.exchange(sent)
        assert first[:13] in (b"HTTP/1.1 %b " % status, b"HTTP/1.0 %b " % status)
        second = await stage.site.exchange(post() + sent)
        assert second.startswith(b"HTTP/1.1 200")
        assert second.endswith(first.rpartition(b"\r\n\r\n")[2])

    assert sent.startswith(handed[0])
    assert sent.startswith(handed[1])


async def test_expect_gets_its_100() -> None:
    """aiohttp asks for the body, and for none where the gate refuses."""
    head, _, body = CLOSING.replace(b"Host", b"Expect: 100-continue\r\nHost").partition(b"\r\n\r\n")
    async with staged() as stage:
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(head + b"\r\n\r\n")
        assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n")
        writer.write(body)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_what_comes_later_stays_with_aiohttp(handed: list[bytes]) -> None:
    """A connection that was handed over doesn't come back."""
    async with staged() as stage:
        said = await stage.site.exchange(post() + GET + post() + CLOSING)

    assert said.count(b"HTTP/1.1 200") == 4
    assert len(handed) == 1


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}?long=way"], ids=["express", "aiohttp"])
async def test_the_gate_stands_before_it(path: str) -> None:
    """Key and Host are checked on both ways."""
    models = {"a": ModelConfig(cmd="serve a")}
    async with staged(config=Config(models=models, api_keys=("k",))) as stage:
        async with stage.ask(path=path) as answer:
            assert answer.status == 401
            assert "WWW-Authenticate" in answer.headers
            assert "Date" in answer.headers
        key = {"Authorization": "Bearer k"}
        async with stage.ask(path=path, headers={**key, "Host": "evil.example"}) as answer:
            assert answer.status == 403
        async with stage.ask(path=path, headers=key) as answer:
            assert answer.status == 200
        assert stage.lender.arrived == [("a", True)]


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}?long=way"], ids=["express", "aiohttp"])
async def test_errors_look_the_same(path: str) -> None:
    """In the form that the client accepts."""
    async with staged() as stage:
        async with stage.ask(b'{"model":"b"}', path) as answer:
            assert answer.status == 404
            assert answer.content_type == "application/json"
            assert (await answer.json())["error"]["code"] == "not_found"
        async with stage.ask(b'{"model":"b"}', path, headers={"Accept": "text/html"}) as answer:
            assert answer.content_type == "text/html"


async def test_what_nobody_expected_is_a_500_without_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With its number in the log; the connection goes on."""

    async with staged() as stage:

        async def fails(*_: object, **__: object) -> None:
            raise ZeroDivisionError("secret")

        with monkeypatch.context() as patch:
            patch.setattr(stage.proxy, "serve", fails)
            reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
            writer.write(post())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            error = json.loads(await reader.readexactly(length))["error"]
        writer.write(CLOSING)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()

    assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert error["message"].startswith("internal error; the log says more under request ")
    assert "ZeroDivisionError: secret" in caplog.text


async def test_a_request_is_one_line_in_the_log() -> None:
    """The same as of aiohttp's requests."""
    lines: list[str] = []
    async with serving(front_of(config_of("a")), log=AccessLog(lines.extend)) as site:
        said = await site.exchange(post(more="User-Agent: test/1\r\nConnection: close\r\n"))
        size = len(said.partition(b"\r\n\r\n")[2])
        await eventually(lambda: bool(lines))

    start = f'Request 127.0.0.1 "POST {CHAT} HTTP/1.1" 200 {size} "test/1" '
    assert lines[0].startswith(start)
    assert len(lines) == 1


async def test_a_client_that_leaves_frees_its_place() -> None:
    """Whether it waits or is served."""

    async def script(_: Received, line: Line) -> None:
        await line.gone()

    async with staged(script) as stage:
        _, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(post())
        await eventually(lambda: bool(stage.lender.in_flight))
        writer.transport.abort()
        await stage.nobody_is_left()
        await eventually(lambda: stage.server.gone == 1)


async def test_a_client_may_not_ask_ahead_without_end() -> None:
    """What it sends while it is served waits in the socket; then all of it is answered."""
    release = asyncio.Event()

    async def script(received: Received, line: Line) -> None:
        await release.wait()
        await say_ok(received, line)

    request = post(b'{"model":"a","x":"%b"}' % (b"x" * 60_000))
    async with staged(script) as stage:
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        reading = asyncio.ensure_future(reader.read())
        for _ in range(200):
            writer.write(request)
        await eventually(lambda: bool(stage.lender.in_flight))
        held = writer.transport.get_write_buffer_size
        await asyncio.sleep(0.1)
        assert held() > 1_000_000
        release.set()
        writer.write(CLOSING)

        assert (await reading).count(b"HTTP/1.1 200") == 201
        writer.close()


async def test_a_slow_client_slows_the_server_down() -> None:
    """As with aiohttp's connections; the client may be handed over in the middle of it."""
    body = b"x" * 20_000_000

    async def script(_: Received, line: Line) -> None:
        await line.say(whole(body))

    async with staged(script) as stage:
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        hold(writer)
        writer.write(post() + LAST)
        await eventually(lambda: bool(stage.lender.in_flight))
        await asyncio.sleep(0.1)
        assert stage.lender.in_flight
        go_on(writer)
        said = await reader.read()
        writer.close()

    assert said.count(b"HTTP/1.1 200") == 2
    assert body in said


async def test_a_connection_that_falls_silent_is_closed(
    monkeypatch: pytest.MonkeyPatch, handed: list[bytes]
) -> None:
    """Before its first request and after an answer; a body that stops is aiohttp's to wait for."""
    clock = HandClock()
    clock.keeps(monkeypatch, "express")
    async with staged() as stage:
        silent = asyncio.ensure_future(stage.site.exchange(b""))
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(post())
        assert (await reader.readuntil(b"true}")).startswith(b"HTTP/1.1 200")
        await eventually(lambda: len(clock.alarms) == 2)
        clock.advance(connection.IDLE_S)
        assert await reader.read() == await silent == b""
        assert handed == []
        writer.close()

        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(post() + post()[:-1])
        assert (await reader.readuntil(b"true}")).startswith(b"HTTP/1.1 200")

        def is_handed_over() -> bool:
            clock.advance(connection.IDLE_S)
            return bool(handed)

        await eventually(is_handed_over)
        writer.write(post()[-1:])
        assert (await reader.readuntil(b"true}")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_an_answer_on_its_way_isnt_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the model takes."""
    clock = HandClock()
    clock.keeps(monkeypatch, "express")

    async def script(received: Received, line: Line) -> None:
        clock.advance(connection.IDLE_S * 3)
        await say_ok(received, line)

    async with staged(script) as stage:
        assert await stage.text() == '{"ok":true}'


class Patient:
    """Answers inference when it is told to."""

    def __init__(self) -> None:
        self.outbox = Outbox(asyncio.get_running_loop())
        self.asked = 0
        self.release = asyncio.Event()

    async def serve(self, request: Head, body: HeldBody, outlet: Outlet) -> None:
        """Wait, then answer."""
        self.asked += 1
        await self.release.wait()
        outlet.open((200, b"OK"), b"", size=2, pieces=[b"ok"], complete=True)


async def test_shutdown_closes_who_waits_and_lets_answers_end() -> None:
    """The connection ends with its answer; half a body is waited for."""
    patient = Patient()
    app = front_of(config_of("a"))
    app[EXPRESS] = replace(app[EXPRESS], proxy=patient)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with AsyncExitStack() as stack:
            stop_accepting = await stack.enter_async_context(listening(app, [sock], closing_s=60.0))
            # Read in this order: once the last one is served, half a body was seen, too.
            idle, half, busy = [
                await asyncio.open_connection(*sock.getsockname()) for _ in range(3)
            ]
            half[1].write(post()[:-1])
            busy[1].write(post())
            await eventually(lambda: patient.asked == 1)
            stop_accepting()
            assert await idle[0].read() == b""
            ending = asyncio.ensure_future(stack.pop_all().aclose())
            patient.release.set()
            half[1].write(post()[-1:])
            assert (await busy[0].read()).endswith(b"ok")
            assert (await half[0].read()).startswith(b"HTTP/1.1 200")
            await ending
        for _, writer in (idle, busy, half):
            writer.close()


async def test_shutdown_waits_only_so_long() -> None:
    """Then the connection is closed without an answer."""
    patient = Patient()
    app = front_of(config_of("a"))
    app[EXPRESS] = replace(app[EXPRESS], proxy=patient)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with listening(app, [sock], closing_s=0.1):
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            writer.write(post())
            await eventually(lambda: patient.asked == 1)
        assert await reader.read() == b""
        writer.close()


async def test_over_the_limit_the_longest_idle_connection_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever is being served stays, and so does who came last."""
    monkeypatch.setattr(connection, "connection_limit", lambda: 2)
    patient = Patient()
    app = front_of(config_of("a"))
    app[EXPRESS] = replace(app[EXPRESS], proxy=patient)
    async with serving(app) as site:
        busy = await asyncio.open_connection(site.host, site.port)
        busy[1].write(post())
        await eventually(lambda: patient.asked == 1)
        idle = await asyncio.open_connection(site.host, site.port)
        last = await asyncio.open_connection(site.host, site.port)
        assert await idle[0].read() == b""
        patient.release.set()
        last[1].write(CLOSING)
        assert (await last[0].read()).endswith(b"ok")
        assert (await busy[0].readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        for _, writer in (busy, idle, last):
            writer.close()


@pytest.mark.parametrize("sent", [b"", post()[:-1]], ids=["nothing", "half a body"])
async def test_1000_slow_connections_cost_little_and_hinder_nobody(sent: bytes) -> None:
    """Each waits; others are served, and memory stays in bounds."""
    process = psutil.Process()
    async with staged() as stage:
        before = process.memory_info().rss
        with ExitStack() as clients:
            for _ in range(1000):
                client = socket.create_connection((stage.site.host, stage.site.port))
                clients.enter_context(client).send(sent)
                await asyncio.sleep(0)
            assert await stage.text() == '{"ok":true}'
            grown = process.memory_info().rss - before

    assert grown < 64 * 1024**2


async def test_large_bodies_go_by_the_configured_limit_too(handed: list[bytes]) -> None:
    """`maxBody` is smaller than what is taken here at most."""
    config = Config(models={"a": ModelConfig(cmd="serve a")}, max_body_bytes=10)
    async with staged(config=config) as stage, stage.ask() as answer:
        assert answer.status == 413

    assert len(handed) == 1
    assert express.MOST_BODY_BYTES > 10


async def test_who_asks_ahead_isnt_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much a client sends without waiting for answers, little of it is held in memory."""
    held: list[int] = []
    look = ExpressConnection._look

    def note(connection: ExpressConnection) -> None:
        held.append(len(connection._unread))
        look(connection)

    monkeypatch.setattr(ExpressConnection, "_look", note)
    async with staged() as stage:
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(post(more=f"X-A: {'a' * 4000}\r\n") * 2000 + CLOSING)
        async with asyncio.timeout(150):
            said = await reader.read()
        writer.close()

    assert said.count(b"HTTP/1.1 200") == 2001
    assert max(held) < 2**20
