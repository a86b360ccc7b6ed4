"""`sessions` and `release` against a proxy that answers as told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from tests.cli.conftest import Run, RunAside
from tests.web.serving import Site, serving

USED = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ONE = {
    "id": "1a2b3c",
    "model": "m",
    "tokens": 670,
    "messages": 2,
    "bytes": 1_383_000,
    "used": USED.isoformat(timespec="seconds"),
}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A proxy that keeps one conversation."""
    kept: dict[str, Any] = {"sessions": [ONE], "bytes": 1_383_000, "refusals": {}, "fault": ""}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(kept)

    app = web.Application()
    app.router.add_get("/api/sessions", answer)
    async with serving(app) as site:
        yield site


async def test_conversations_are_listed_for_people(llmsnap_aside: RunAside, site: Site) -> None:
    """With the time of this machine, and no more digits than anybody reads."""
    outcome = await llmsnap_aside("sessions", "ls", "--url", site.url)

    assert (outcome.code, outcome.err) == (0, "")
    assert f"{USED.astimezone():%Y-%m-%d %H:%M:%S}" in outcome.out
    assert outcome.out.endswith("\n1 conversation, 1 MiB\n")


@pytest.mark.parametrize("option", ["--for", "--timeout"])
def test_a_time_that_is_none_is_a_wrong_command_line(llmsnap: Run, option: str) -> None:
    """Nobody is asked for it."""
    outcome = llmsnap("release", option, "2x")

    assert outcome.code == 2
    assert "'2x' isn't a time; write seconds, or 500ms" in outcome.err
