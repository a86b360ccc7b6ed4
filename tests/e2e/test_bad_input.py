"""Broken, hostile and half-sent input: a clear 4xx or a closed connection, others served."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress

import psutil
import pytest
import pytest_asyncio

from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import ProxyProcess, running_proxy

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

POST = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def victim(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProxyProcess]:
    """A proxy over one fake model, which has to take it all, one after the other."""
    folder = tmp_path_factory.mktemp("bad-input")
    async with running_proxy(FakeModels(folder).add("a").yaml, folder) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(victim: ProxyProcess) -> AsyncIterator[ProxyProcess]:
    """The same after each test: it still serves, and logged no traceback."""
    yield victim
    assert (await victim.chat("a"))["model"] == "a"
    assert "Traceback" not in victim.log


async def raw(proxy: ProxyProcess, data: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes as they are; return all that comes back until the proxy closes."""

    def talk() -> bytes:
        came = b""
        with socket.create_connection(("127.0.0.1", port_of(proxy)), timeout=60) as sock:
            with suppress(OSError):  # it may go before all is said; it has answered then
                sock.sendall(data)
                if half_close:
                    sock.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while piece := sock.recv(65536):
                    came += piece
        return came

    return await asyncio.to_thread(talk)


def port_of(proxy: ProxyProcess) -> int:
    """The port the proxy listens on."""
    return int(proxy.url.rsplit(":", 1)[1])


def status(answer: bytes) -> int:
    """The status of a raw answer; 0 when the connection was closed without one."""
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return int(found[1]) if found else 0


def with_body(body: bytes, *, more: str = "") -> bytes:
    """A chat request with a right length that asks to close afterwards."""
    head = f"{POST}Content-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model": "a"', 400),
        (b'{"model": "a",}', 400),
        (b"", 404),
        (b"null", 404),
        (b"[1, 2]", 404),
        (b'"a"', 404),
        (b'{"model": null}', 404),
        (b'{"model": ""}', 404),
        (b'{"model": {"a": 1}}', 404),
        (b'{"model": 12}', 404),
        (b'{"model": "\xff\xfe"}', 400),
        (b"\x00\x01\x02", 400),
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"model": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    ],
    ids=[
        "cut",
        "trailing comma",
        "empty",
        "null",
        "list",
        "string",
        "model null",
        "model empty",
        "model object",
        "model number",
        "invalid UTF-8",
        "binary",
        "deep list",
        "deep value",
    ],
)
async def test_bodies_that_make_no_sense(body: bytes, expected: int, proxy: ProxyProcess) -> None:
    """Each gets its 4xx with an error object."""
    answer = await raw(proxy, with_body(body))

    assert status(answer) == expected
    assert b'"error"' in answer


async def test_stream_of_a_wrong_type_is_the_servers_to_judge(proxy: ProxyProcess) -> None:
    """`"stream": "true"` isn't true for us, and no reason to refuse."""
    answer, body = await proxy.post("/v1/chat/completions", {"model": "a", "stream": "true"})

    assert answer == 200
    assert '"stream": "true"' in body["seen"]["body"]


async def test_the_last_of_two_model_keys_counts(proxy: ProxyProcess) -> None:
    """As in the JSON parsers of the servers behind."""
    assert status(await raw(proxy, with_body(b'{"model": "nope", "model": "a"}'))) == 200


async def test_huge_headers(proxy: ProxyProcess) -> None:
    """200 kB of headers are refused."""
    answer = await raw(proxy, with_body(b"{}", more=f"X-Big: {'x' * 200_000}\r\n"))

    assert status(answer) in (400, 431)


@pytest.mark.parametrize("size", ["zz", "-5", "ffffffffffffffffff", "5\r\nhello\r\nnope"])
async def test_chunk_sizes_that_are_none(size: str, proxy: ProxyProcess) -> None:
    """400 or a closed connection, never a hang."""
    head = f"{POST}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    answer = await raw(proxy, f"{head}{size}\r\nhello\r\n".encode(), half_close=True)

    assert status(answer) in (0, 400)


async def test_a_body_cut_half_way(proxy: ProxyProcess) -> None:
    """A client that promised more and left is let go."""
    head = f"{POST}Content-Length: 1000\r\n\r\n"
    answer = await raw(proxy, head.encode() + b'{"model": "a"', half_close=True)

    assert status(answer) in (0, 400)


async def test_two_framings_at_once(proxy: ProxyProcess) -> None:
    """`Content-Length` and chunked together are refused: request smuggling starts so."""
    more = "Transfer-Encoding: chunked\r\n"
    answer = await raw(proxy, with_body(b"0\r\n\r\n", more=more))

    assert status(answer) == 400


@pytest.mark.parametrize("held_back", ["", "Expect: 100-continue\r\n"])
@pytest.mark.parametrize("codings", ["gzip, chunked", "x,Chunked"])
async def test_codings_that_arent_understood(
    codings: str, held_back: str, proxy: ProxyProcess
) -> None:
    """501 that names them, instead of a body that nobody has decoded; plain chunks pass."""
    head = f"{POST}Transfer-Encoding: {codings}\r\n{held_back}Connection: close\r\n\r\n"
    answer = await raw(proxy, f"{head}2\r\n{{}}\r\n0\r\n\r\n".encode())

    assert status(answer) == 501
    assert b"isn't understood" in answer


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5x\r\n\r\n",
    ],
    ids=["garbage", "version", "nul", "tls", "http2", "negative length", "length text"],
)
async def test_what_is_no_request(data: bytes, proxy: ProxyProcess) -> None:
    """400 or a closed connection."""
    assert status(await raw(proxy, data, half_close=True)) in (0, 400)


async def test_a_multipart_without_its_boundary(proxy: ProxyProcess) -> None:
    """A 400 that says so."""
    request = (
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Type: multipart/form-data\r\nContent-Length: 4\r\n\r\nabcd"
    )
    answer = await raw(proxy, request.encode())

    assert status(answer) == 400
    assert b"boundary" in answer


@pytest.mark.slow
async def test_a_thousand_silent_connections(proxy: ProxyProcess) -> None:
    """Clients that send nothing cost little memory, and others are served meanwhile."""
    await proxy.chat("a")
    own = psutil.Process(proxy.process.pid)
    before = own.memory_info().rss
    with ExitStack() as held:
        for _ in range(1000):
            held.enter_context(socket.create_connection(("127.0.0.1", port_of(proxy))))
        answers = await asyncio.gather(*(proxy.chat("a") for _ in range(20)))
        grown = own.memory_info().rss - before

    assert len(answers) == 20
    assert grown < 64 * 2**20
