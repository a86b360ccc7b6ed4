"""Streamed answers: text, times, and what goes wrong, from a server that answers as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from llmsnap.client.proxy import Client, NoProxy, Refused
from llmsnap.client.stream import CHAT_PATH, Figures, Piece, ask, phases_of
from tests.web.serving import Site, serving


@dataclass
class Server:
    """What it says, line by line, and what it was asked."""

    lines: list[str]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer; one that is cut goes away in the middle."""
        assert (await request.json())["stream"] is True
        response = web.StreamResponse(status=self.status, headers=self.headers)
        response.content_type = self.content_type
        await response.prepare(request)
        for line in self.lines:
            await response.write(f"{line}\n\n".encode())
        if self.is_cut:
            assert request.transport is not None
            request.transport.abort()
        return response


@pytest.fixture
def server() -> Server:
    """A model that thinks first."""
    return Server(
        [
            'data: {"choices": [{"delta": {"role": "assistant", "content": null}}]}',
            'data: {"choices": [{"delta": {"reasoning_content": "hm"}}]}',
            'data: {"choices": [{"delta": {"content": "ho"}}]}',
            'data: {"choices": [], "timings": {"prompt_n": 2, "cache_n": 5, "predicted_n": 4, '
            '"predicted_ms": 500.0}}',
            "data: [DONE]",
        ]
    )


@pytest.fixture
async def site(server: Server) -> AsyncIterator[Site]:
    """The server, listening."""
    app = web.Application()
    app.router.add_post(CHAT_PATH, server.answer)
    async with serving(app) as site:
        yield site


async def heard(site: Site) -> tuple[list[Piece], Figures]:
    """Ask, and listen to the end."""

    def listen() -> tuple[list[Piece], Figures]:
        with ask(Client(site.url), CHAT_PATH, {"model": "m"}) as stream:
            return list(stream), stream.figures

    return await asyncio.to_thread(listen)


async def test_text_and_thoughts_are_told_apart(site: Site) -> None:
    """Events that say nothing give no piece; the server's own figures come with the end."""
    pieces, figures = await heard(site)

    assert pieces == [Piece("hm", is_thought=True), Piece("ho")]
    assert figures.tokens is not None
    assert (figures.tokens.prompt, figures.tokens.cached) == (7, 5)
    assert figures.tokens_per_s == 8.0
    assert figures.first_s is not None
    assert 0 < figures.first_s <= figures.total_s


async def test_phases_come_in_the_head(site: Site, server: Server) -> None:
    """And what isn't a wait for the model doesn't count as one."""
    server.headers = {"Server-Timing": "start;dur=200.0, prefill;dur=50.0", "X-Llmsnap-Model": "m"}

    _, figures = await heard(site)

    assert figures.model == "m"
    assert figures.phases_s == {"start": 0.2, "prefill": 0.05}
    assert figures.waited_s == 0.2


async def test_phases_of_a_long_wait_ride_on_a_comment(site: Site, server: Server) -> None:
    """Where the head went out before they were known."""
    server.lines.insert(0, ": waiting\n\n: server-timing start;dur=12000.0")

    _, figures = await heard(site)

    assert figures.phases_s == {"start": 12.0}


async def test_a_server_that_doesnt_stream_is_understood(site: Site, server: Server) -> None:
    """Its answer comes in one piece."""
    server.content_type = "application/json"
    server.lines = ['{"choices": [{"message": {"content": "ho"}}], "usage": {"prompt_tokens": 3}}']

    pieces, figures = await heard(site)

    assert pieces == [Piece("ho")]
    assert figures.tokens is not None
    assert figures.tokens.prompt == 3
    assert figures.tokens_per_s is None


async def test_an_error_in_the_middle_is_raised(site: Site, server: Server) -> None:
    """With the server's own words."""
    server.lines[3:] = ['data: {"error": {"message": "the model went away"}}']

    with pytest.raises(Refused, match="the model went away"):
        await heard(site)


async def test_an_answer_that_is_cut_off_is_no_whole_one(site: Site, server: Server) -> None:
    """Whatever came before."""
    server.is_cut = True

    with pytest.raises(NoProxy, match="broke off"):
        await heard(site)


async def test_a_refusal_is_raised_before_any_text(site: Site, server: Server) -> None:
    """With the server's own words."""
    server.status, server.content_type = 404, "application/json"
    server.lines = ['{"error": {"message": "no such model"}}']

    with pytest.raises(Refused, match="no such model"):
        await heard(site)


def test_what_cant_be_read_of_a_timing_is_left_out() -> None:
    """Other servers use the header in other ways."""
    assert phases_of("cdn-cache; desc=HIT, wake;dur=3, x;dur=fast") == {"wake": 0.003}
