"""Requests under way, and how one is ended."""

from __future__ import annotations

import asyncio

import pytest

from tests.helpers.waiting import eventually
from tests.web.scripted import Line, Received
from tests.web.stage import CHAT, staged


async def one_event(_: Received, line: Line) -> None:
    """Begin a stream, and say no more."""
    await line.say(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    await line.chunk(b"data: {}\n\n")
    await line.gone()


async def test_what_waits_and_what_is_answered_is_listed() -> None:
    """With its model, its path and its client, as long as it is there."""
    async with staged(one_event, up=False) as stage:
        asking = asyncio.ensure_future(stage.text(b'{"model":"a","stream":true}'))
        await eventually(lambda: bool(stage.lender.waiting))
        (waiting,) = (await stage.site.ask("/api/inflight")).json["requests"]
        stage.put_up()
        await eventually(lambda: len(stage.server.received) == 1)

        async def has_begun() -> bool:
            (request,) = (await stage.site.ask("/api/inflight")).json["requests"]
            return bool(request["resp_bytes"])

        await eventually(has_begun)
        (answering,) = (await stage.site.ask("/api/inflight")).json["requests"]
        asking.cancel()
        await stage.nobody_is_left()

        assert (await stage.site.ask("/api/inflight")).json == {"requests": []}
    assert waiting["state"] == "waiting"
    assert answering["state"] == "answering"
    assert answering["resp_headers"] == {"Content-Type": "text/event-stream"}
    assert (waiting["resp_bytes"], answering["resp_bytes"]) == (0, len(b"data: {}\n\n"))
    assert "" not in answering["req_headers"].values()
    assert (waiting["id"], waiting["model"], waiting["req_path"]) == ("1", "a", CHAT)
    assert (waiting["method"], waiting["remote_ip"]) == ("POST", "127.0.0.1")
    assert answering["elapsed_ms"] >= waiting["elapsed_ms"]


async def test_one_that_waits_is_ended_with_a_status() -> None:
    """The model isn't loaded for it any more."""
    async with staged(up=False) as stage:
        asking = asyncio.ensure_future(stage.site.ask(CHAT, method="POST", data=b'{"model":"a"}'))
        await eventually(lambda: bool(stage.lender.waiting))
        reply = await stage.site.ask("/api/inflight/1/cancel", method="POST")

        assert reply.json == {"msg": "ok"}
        assert (await asking).status == 499
        assert (await asking).json["error"]["code"] == "cancelled"


async def test_one_that_is_answered_ends_with_an_event() -> None:
    """And its server hears that nobody listens any more."""
    async with staged(one_event) as stage:
        async with stage.ask(b'{"model":"a","stream":true}') as answer:
            await answer.content.readuntil(b"data: {}\n\n")
            await stage.site.ask("/api/inflight/1/cancel", method="POST")
            rest = await answer.text()

    assert '"code":"cancelled"' in rest


@pytest.mark.parametrize(("number", "status"), [("7", 404), ("x", 404), ("9" * 30, 404)])
async def test_numbers_of_nobody(number: str, status: int) -> None:
    """Nothing happens."""
    async with staged() as stage:
        reply = await stage.site.ask(f"/api/inflight/{number}/cancel", method="POST")
        assert reply.status == status


async def test_pages_of_other_sites_end_nothing() -> None:
    """Nor do they switch profiles."""
    async with staged() as stage:
        headers = {"Sec-Fetch-Site": "cross-site"}
        for path, method in (("/api/inflight/1/cancel", "POST"), ("/api/profiles/active", "PUT")):
            reply = await stage.site.ask(path, method=method, headers=headers)
            assert reply.status == 403
