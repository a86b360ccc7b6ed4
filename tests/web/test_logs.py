"""Logs over HTTP: whole, or followed until the reader leaves or the proxy ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.runtime.logs import Logs
from tests.helpers.waiting import eventually
from tests.web.fleet import front_of
from tests.web.serving import Site, serving

CONFIG = Config(models={"org/a": ModelConfig(aliases=("nick",)), "b": ModelConfig()})


@asynccontextmanager
async def logging_site(logs: Logs) -> AsyncIterator[Site]:
    """Serve `logs` of two models."""
    async with serving(front_of(CONFIG, logs=logs)) as site:
        yield site


@pytest.fixture
def logs() -> Logs:
    """A proxy's log, whose models' output isn't on standard output."""
    logs = Logs(to_stdout="proxy")
    logs.write_proxy(b"[INFO] began\n")
    logs.write_upstream("org/a", b"from a\n")
    logs.write_upstream("b", b"from b\n")
    return logs


async def test_logs_is_what_goes_to_standard_output(logs: Logs) -> None:
    """As text for programs; browsers are led to the page."""
    async with logging_site(logs) as site:
        text = await site.ask("/logs")
        page = await site.ask("/logs", headers={"Accept": "text/html,*/*"})

    assert text.text == "[INFO] began\n"
    assert text.headers["Content-Type"].startswith("text/plain")
    assert (page.status, page.headers["Location"]) == (302, "/ui/#logs")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/logs/stream", "[INFO] began\n"),
        ("/logs/stream/", "[INFO] began\n"),
        ("/logs/stream/proxy", "[INFO] began\n"),
        ("/logs/stream/upstream", "from a\nfrom b\n"),
        ("/logs/stream/org/a", "from a\n"),
        ("/logs/stream/org%2Fa", "from a\n"),
        ("/logs/stream/nick", "from a\n"),
        ("/logs/stream/b", "from b\n"),
    ],
)
async def test_each_log_has_a_name(logs: Logs, path: str, text: str) -> None:
    """Combined, the proxy's, all models', and one a model under each of its names."""
    async with logging_site(logs) as site:
        answer = await site.ask(f"{path}?no-follow")

    assert answer.text == text


async def test_an_unknown_log_is_a_bad_request(logs: Logs) -> None:
    """As in llama-swap: 400, not 404."""
    async with logging_site(logs) as site:
        answer = await site.ask("/logs/stream/nope")

    assert answer.status == 400
    assert "'nope'" in answer.message


async def test_a_stream_goes_on_with_what_comes(logs: Logs) -> None:
    """History first, then live bytes, unbuffered by anybody on the way."""
    async with logging_site(logs) as site, site.session.get("/logs/stream/b") as answer:
        history = await answer.content.readany()
        logs.write_upstream("b", b"news\n")
        news = await answer.content.readany()

        assert (history, news) == (b"from b\n", b"news\n")
        assert answer.headers["Transfer-Encoding"] == "chunked"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Accel-Buffering"] == "no"


@pytest.mark.parametrize("query", ["no-history", "no-history=", "no-history=0"])
async def test_a_stream_may_begin_now(logs: Logs, query: str) -> None:
    """Whatever value the parameter has."""
    async with logging_site(logs) as site, site.session.get(f"/logs/stream/b?{query}") as answer:
        logs.write_upstream("b", b"news\n")

        assert await answer.content.readany() == b"news\n"


async def test_a_reader_that_leaves_is_forgotten(logs: Logs) -> None:
    """Its subscription ends with its connection."""
    readers = logs.model("b")._subscriptions
    async with logging_site(logs) as site:
        async with site.session.get("/logs/stream/b") as answer:
            await answer.content.readany()
            assert len(readers) == 1
            answer.close()
        await eventually(lambda: not readers)


async def test_streams_end_whole_when_the_logs_close(logs: Logs) -> None:
    """What was written is sent, and the answer ends as answers end."""
    async with logging_site(logs) as site, site.session.get("/logs/stream/b") as answer:
        await answer.content.readany()
        logs.write_upstream("b", b"last words\n")
        logs.close()

        assert await answer.content.read() == b"last words\n"


async def test_a_head_of_a_stream_doesnt_wait_for_its_end(logs: Logs) -> None:
    """There is none."""
    async with logging_site(logs) as site:
        answer = await site.ask("/logs/stream", method="HEAD")

    assert (answer.status, answer.text) == (200, "")
