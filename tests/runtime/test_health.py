from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from llmsnap.runtime import health
from llmsnap.runtime.health import Prober, pause_s, until_ready
from llmsnap.runtime.logs import LogPipe
from llmsnap.runtime.plan import Endpoint
from llmsnap.runtime.process import Child, Command, Farewell, end, launch
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually
from tests.runtime.rig import serve_argv

Answer = Callable[[bytes], Awaitable[bytes]]

pytestmark = pytest.mark.usefixtures("patient")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def answering(answer: Answer, port: int = 0) -> AsyncIterator[int]:
    """A server in this process that sends what `answer` returns; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(await answer(await reader.readuntil(b"\r\n\r\n")))
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def child_of(*argv: str) -> AsyncIterator[Child]:
    """A child of ours, ended afterwards."""
    pipe = LogPipe(lambda _: None)
    command, mark = Command(argv=argv, env=os.environ), os.urandom(8).hex()
    child = await launch(command, output=pipe.write_end, mark=mark)
    pipe.close_write_end()
    try:
        yield child
    finally:
        await end(child, Farewell(grace_s=0))
        pipe.close()


def endpoint(port: int, host: str = "127.0.0.1") -> Endpoint:
    """A place on this machine."""
    return Endpoint(host=host, port=port)


@pytest.mark.parametrize(
    ("head", "ready"),
    [
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.1 503 Loading", False),
        (b"HTTP/1.1 204 No Content", False),
        (b"HTTP/1.1 404 Not Found", False),
        (b"HTTP/1.1 302 Found\r\nLocation: /health", False),
        (b"\x16\x03\x01 not http", False),
        (b"", False),
    ],
)
async def test_only_200_is_ready(head: bytes, ready: bool) -> None:
    """Redirects aren't followed, and what isn't HTTP isn't ready."""

    async def answer(_: bytes) -> bytes:
        return head and head + b"\r\nContent-Length: 0\r\n\r\n"

    async with answering(answer) as port, Prober() as prober:
        assert await prober.is_ready(f"http://127.0.0.1:{port}/health") is ready


async def test_u107_a_probe_has_the_servers_own_key() -> None:
    """A server that asks for one is ready for who has it."""

    async def answer(asked: bytes) -> bytes:
        knows = b"\r\nAuthorization: Bearer k2\r\n" in asked
        return OK if knows else OK.replace(b"200 OK", b"401 No")

    async with answering(answer) as port, Prober() as prober:
        url = f"http://127.0.0.1:{port}/health"
        assert not await prober.is_ready(url)
        assert await prober.is_ready(url, key="k2")


async def test_nobody_there_is_not_ready() -> None:
    """A refused connection is an answer too."""
    async with Prober() as prober:
        assert not await prober.is_ready(f"http://127.0.0.1:{free_port()}/health")


async def test_a_hung_probe_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and says nothing holds nobody up beyond the limit of one probe."""
    monkeypatch.setattr(health, "_PROBE_S", 0.1)

    over = asyncio.Event()

    async def never(_: bytes) -> bytes:
        await over.wait()
        return b""

    async with answering(never) as port, Prober() as prober, asyncio.timeout(30):
        assert not await prober.is_ready(f"http://127.0.0.1:{port}/health")
        over.set()


async def test_the_pauses_grow_with_the_wait() -> None:
    """Short while a small model may come up at any moment, never over a second."""
    assert pause_s(0) == 0.01
    assert pause_s(0.4) == pytest.approx(0.01)
    assert pause_s(10) == pytest.approx(0.25)
    assert pause_s(1000) == 1


async def test_a_child_of_ours_is_ready_when_it_answers() -> None:
    """At once: its own listener needs no second look."""
    port = free_port()
    async with child_of(*serve_argv(port)) as child, Prober() as prober, asyncio.timeout(30):
        assert await until_ready(child, endpoint(port), "/health", prober) == "127.0.0.1"


@pytest.mark.parametrize("where", ["group", "session"])
async def test_a_grandchild_of_ours_counts(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server below a shell wrapper is ours, wherever it went."""
    monkeypatch.setattr(health, "_OUTSIDER_S", 3600)
    port = free_port()
    argv = serve_argv(port, f"--grandchild {where}")
    async with child_of(*argv) as child, Prober() as prober, asyncio.timeout(30):
        assert await until_ready(child, endpoint(port), "/health", prober) == "127.0.0.1"


@pytest.mark.parametrize(("listens_on", "found"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
async def test_localhost_becomes_the_address_that_answered(listens_on: str, found: str) -> None:
    """So that requests don't go to somebody else on the other loopback address."""
    port = free_port()
    argv = serve_argv(port, f"--host {listens_on}")
    async with child_of(*argv) as child, Prober() as prober, asyncio.timeout(30):
        assert await until_ready(child, endpoint(port, "localhost"), "/health", prober) == found


async def test_the_base_path_stands_in_front() -> None:
    """`proxy: http://host/base` with `checkEndpoint: /up` asks for /base/up."""
    asked: list[bytes] = []

    async def answer(request: bytes) -> bytes:
        asked.append(request.split(b" ")[1])
        return OK

    async with answering(answer) as port, child_of("sleep", "60") as child, Prober() as prober:
        place = Endpoint(host="127.0.0.1", port=port, base_path="/base")
        await until_ready(child, place, "/up?x=1", prober)
    assert set(asked) == {b"/base/up?x=1"}


async def test_a_listener_outside_must_stay_for_a_second() -> None:
    """Containers listen elsewhere; a stranger who took the port is unmasked when our child ends."""
    loop = asyncio.get_running_loop()

    async def answer(_: bytes) -> bytes:
        return OK

    async with answering(answer) as port, child_of("sleep", "60") as child, Prober() as prober:
        began = loop.time()
        async with asyncio.timeout(30):
            await until_ready(child, endpoint(port), "/health", prober)
        assert loop.time() - began >= 1


async def test_an_outsider_that_stops_answering_starts_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second must be an unbroken one."""
    monkeypatch.setattr(health, "_OUTSIDER_S", 0.2)
    loop = asyncio.get_running_loop()
    asked = 0
    failed_at = 0.0

    async def answer(_: bytes) -> bytes:
        nonlocal asked, failed_at
        asked += 1
        if asked == 2:
            failed_at = loop.time()
            return OK.replace(b"200", b"503")
        return OK

    async with answering(answer) as port, child_of("sleep", "60") as child, Prober() as prober:
        async with asyncio.timeout(30):
            await until_ready(child, endpoint(port), "/health", prober)
        assert loop.time() - failed_at >= 0.2
        assert failed_at


async def test_none_is_ready_without_a_probe() -> None:
    """`checkEndpoint: none` asks nobody."""
    async with child_of("sleep", "60") as child, Prober() as prober:
        assert await until_ready(child, endpoint(1), None, prober) == "127.0.0.1"


async def test_it_waits_as_long_as_it_takes() -> None:
    """503 isn't ready, and only the caller's patience ends the wait."""
    port = free_port()
    argv = serve_argv(port, "--status 503")
    async with child_of(*argv) as child, Prober() as prober, aiohttp.ClientSession() as client:
        waiting = asyncio.ensure_future(until_ready(child, endpoint(port), "/health", prober))

        async def answers() -> bool:
            try:
                async with client.get(f"http://127.0.0.1:{port}/") as answer:
                    return answer.status == 503
            except aiohttp.ClientError:
                return False

        await eventually(answers)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})
