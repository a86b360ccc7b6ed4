"""The bytes that a client's connection gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from llmsnap.web.bridge import outlet_for, relayed
from llmsnap.web.envelope import has_begun
from llmsnap.web.outbox import Outbox
from llmsnap.web.outlet import Outlet

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CLOSING = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def said(handler: Handler, sent: bytes = CLOSING) -> bytes:
    """All that a client gets of a server with that handler."""
    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(sent)
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        return answer
    finally:
        await runner.cleanup()


def answering(write: Callable[[Outlet], Awaitable[None]]) -> Handler:
    """A handler that answers by writing to an outlet, with an outbox of its own."""

    async def handler(request: web.Request) -> web.StreamResponse:
        outlet = outlet_for(request, Outbox(asyncio.get_running_loop()))
        response = await relayed(request, outlet, write(outlet))
        assert has_begun(request)
        assert response.prepared
        assert response.status == outlet.status
        return response

    return handler


@answering
async def whole(outlet: Outlet) -> None:
    """A short answer in one write."""
    outlet.open((200, b"Fine"), b"X: y\r\n", size=3, pieces=[b"a", b"bc"], complete=True)
    assert (outlet.head_sent, outlet.status, outlet.is_whole) == (True, 200, True)


async def test_an_answer_in_one_write() -> None:
    """aiohttp adds nothing to it."""
    assert await said(whole) == (
        b"HTTP/1.1 200 Fine\r\nX: y\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
    )


async def test_the_connection_goes_on_where_the_client_wants_it() -> None:
    """The second request is answered as well."""
    answers = await said(whole, REQUEST + CLOSING)

    assert answers.count(b"HTTP/1.1 200 Fine") == 2
    assert answers.count(b"Connection: close") == 1


async def test_pieces_that_came_together_are_one_chunk() -> None:
    """And nothing follows the last one."""

    @answering
    async def handler(outlet: Outlet) -> None:
        outlet.open((200, b"OK"), b"", size=None, pieces=[b"ab"], complete=False)
        outlet.send([], complete=False)
        outlet.send([b"cd", b"ef"], complete=False)
        outlet.send([], complete=True)
        outlet.send([b"gh"], complete=True)

    assert (await said(handler)).partition(b"\r\n\r\n")[2] == (b"2\r\nab\r\n4\r\ncdef\r\n0\r\n\r\n")


@pytest.mark.parametrize("size", [100, 200_000])
async def test_short_and_long_answers(size: int) -> None:
    """Joined where that is cheap, otherwise not."""

    @answering
    async def handler(outlet: Outlet) -> None:
        outlet.open((200, b"OK"), b"", size=None, pieces=[b"x" * size] * 2, complete=True)

    body = (await said(handler)).partition(b"\r\n\r\n")[2]
    assert body == b"%x\r\n%b\r\n0\r\n\r\n" % (2 * size, b"x" * 2 * size)


async def test_a_cut_answer_doesnt_look_whole() -> None:
    """Its last chunk is missing; the connection is closed."""

    @answering
    async def handler(outlet: Outlet) -> None:
        outlet.open((200, b"OK"), b"", size=None, pieces=[b"ab"], complete=False)
        outlet.cut()
        outlet.send([b"cd"], complete=True)

    assert (await said(handler, REQUEST)).endswith(b"\r\n\r\n2\r\nab\r\n")


async def test_an_answer_that_ends_with_its_connection_is_cut_by_a_reset() -> None:
    """Otherwise an old client would take it for whole."""

    @answering
    async def handler(outlet: Outlet) -> None:
        outlet.open((200, b"OK"), b"", size=None, pieces=[b"ab"], complete=False)
        await asyncio.sleep(0.05)
        outlet.cut()

    with pytest.raises(ConnectionError):
        await said(handler, b"GET / HTTP/1.0\r\n\r\n")
