"""Requests as they go to a model's server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.web.stage import staged


@pytest.mark.parametrize(
    ("method", "framing"),
    [("GET", None), ("DELETE", None), ("OPTIONS", None), ("POST", "0"), ("PUT", "0")],
)
async def test_requests_without_a_body(method: str, framing: str | None) -> None:
    """Those that usually have one say that it is empty."""
    async with staged() as stage:
        await stage.site.raw(f"{method} /upstream/a/x")

        if method == "OPTIONS":  # answered by the gate
            assert stage.server.received == []
            return
        assert stage.received.method == method
        assert stage.received.all("content-length") == ([framing] if framing else [])
        assert stage.received.all("transfer-encoding") == []


async def test_the_host_is_the_clients() -> None:
    """An old client names none; the server gets one all the same."""
    async with staged() as stage:
        await stage.site.raw("GET /upstream/a/x")
        assert stage.received["host"] == "localhost"
        await stage.site.exchange(b"GET /upstream/a/x HTTP/1.0\r\n\r\n")
        assert stage.received["host"] == "localhost"
        assert stage.received["x-forwarded-for"] == "127.0.0.1"


async def test_the_servers_base_path_comes_first() -> None:
    """As `proxy` in the configuration says."""
    async with staged(up=False) as stage:
        stage.put_up(base_path="/base")
        await stage.text()
        assert stage.received.target == "/base/v1/chat/completions"


@pytest.mark.parametrize("size", [1, 65_536, 65_537, 1_000_000])
@pytest.mark.parametrize("declared", [True, False], ids=["length", "chunks"])
async def test_bodies_of_any_size_arrive_whole(size: int, declared: bool) -> None:
    """With the framing that they came with."""
    body = bytes(n % 251 for n in range(size))

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, size, 100_000):
            yield body[at : at + 100_000]

    async with staged() as stage:
        data = body if declared else pieces()
        async with stage.site.session.post("/upstream/a/upload", data=data) as answer:
            assert answer.status == 200

        assert stage.received.body == body
        lengths = stage.received.all("content-length")
        codings = stage.received.all("transfer-encoding")
        assert (lengths, codings) == (([str(size)], []) if declared else ([], ["chunked"]))


async def test_a_plain_answer_is_asked_for_where_one_is_needed() -> None:
    """A client's wish for compression stands otherwise."""
    async with staged() as stage:
        async with stage.ask(headers={"Accept-Encoding": "br"}):
            assert stage.received["accept-encoding"] == "br"
        async with stage.ask(b'{"model":"a","stream":true}', headers={"Accept-Encoding": "br"}):
            assert stage.received["accept-encoding"] == "identity"
