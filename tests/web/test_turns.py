"""Whose turn it is: a server isn't ended for what its client takes its time with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from llmsnap.config.schema import ModelConfig
from llmsnap.config.sections import Timeouts
from tests.helpers.flow import go_on, hold, stands_still
from tests.helpers.waiting import eventually
from tests.web.handclock import HandClock
from tests.web.scripted import Line, Received
from tests.web.stage import staged

STALLING = ModelConfig(cmd="serve a", stall_timeout_s=0.2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """What the limit on a silence goes by."""
    clock = HandClock()
    clock.keeps(monkeypatch, "patience")
    return clock


async def test_a_client_that_reads_slowly_is_no_stalled_server(clock: HandClock) -> None:
    """The server is held up for it, and isn't ended for that."""
    sent = 0

    async def script(_: Received, line: Line) -> None:
        nonlocal sent
        await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 26214400\r\n\r\n")
        for _n in range(400):
            await line.say(b"x" * 65536)
            sent += 65536

    async with staged(script, model=STALLING) as stage:
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(b"GET /upstream/a/file HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        hold(writer)
        assert await stands_still(lambda: sent) < 26214400
        clock.advance(5)
        go_on(writer)
        assert len(await reader.readexactly(26214400)) == 26214400
        writer.close()
        assert stage.lender.ended == []


@pytest.mark.parametrize("limits", [{"response_header": 1}, {}], ids=["header", "silence"])
async def test_a_client_that_sends_slowly_is_no_slow_server(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What limits the server counts from where it has the whole request."""
    clock = HandClock()
    patience = clock.keeps_patience(monkeypatch)
    model = ModelConfig(cmd="serve a", timeouts=Timeouts(**limits), stall_timeout_s=0.5)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield b"x" * 100_000
            await eventually(lambda: any(each.is_suspended for each in patience))
            clock.advance(1)

    async with staged(model=model) as stage:
        async with stage.site.session.post("/upstream/a/upload", data=pieces()) as answer:
            assert answer.status == 200, await answer.text()
        assert stage.lender.ended == []


async def test_a_websocket_that_rests_is_no_stalled_server(clock: HandClock) -> None:
    """Nobody owes the other one anything."""

    async def script(_: Received, line: Line) -> None:
        await line.say(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
        await line.say(b"hello")
        await line.gone()

    async with staged(script, model=STALLING) as stage:
        reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
        writer.write(
            b"GET /upstream/a/ws HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: Upgrade\r\nUpgrade: x\r\n\r\n"
        )
        await reader.readuntil(b"hello")
        await asyncio.sleep(0.2)  # so long at least it must have been awake
        clock.advance(5)
        assert stage.lender.ended == []
        writer.close()
