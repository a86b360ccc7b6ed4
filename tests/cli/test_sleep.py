"""`sleep` and `wake` against a proxy that answers as told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from tests.cli.conftest import Outcome, RunAside
from tests.web.serving import Site, serving


@dataclass
class Answers:
    """What the proxy says, and what it was asked."""

    status: int = 200
    body: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer."""
        self.asked.append(f"{request.method} {request.raw_path}")
        return web.json_response(self.body, status=self.status)


@pytest.fixture
def proxy() -> Answers:
    """A model that sleeps by endpoints, and takes a second for it."""
    phases = {"drain_s": 0.0, "sleep_s": 1.25}
    return Answers(body={"model": "m", "state": "asleep", "driver": "endpoints", "phases": phases})


@pytest.fixture
async def site(proxy: Answers) -> AsyncIterator[Site]:
    """The proxy, listening."""
    app = web.Application()
    app.router.add_post("/api/models/{order:(sleep|wake)}/{model:.+}", proxy.answer)
    async with serving(app) as site:
        yield site


@pytest.fixture
def told(llmsnap_aside: RunAside, site: Site) -> RunAside:
    """Run a command that talks to that proxy."""

    async def run(*argv: str) -> Outcome:
        return await llmsnap_aside(*argv, "--url", site.url)

    return run


async def test_sleep_says_by_what_and_how_long(told: RunAside, proxy: Answers) -> None:
    """Phases that took no time aren't mentioned; names with slashes are fine."""
    outcome = await told("sleep", "author/m")

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "m is asleep (endpoints) after 1.25 s: sleep 1.25 s\n"
    assert proxy.asked == ["POST /api/models/sleep/author/m"]


async def test_wake_says_what_the_wait_was_made_of(told: RunAside, proxy: Answers) -> None:
    """The proxy's own total counts, when it gives one."""
    phases = {"queue_s": 0.02, "evict_s": 0.5, "wake_s": 0.48, "total_s": 1.0}
    proxy.body |= {"state": "ready", "phases": phases}

    outcome = await told("wake", "m")

    assert outcome.out == (
        "m is ready (endpoints) after 1.00 s: queue 0.02 s, evict 0.50 s, wake 0.48 s\n"
    )
    assert proxy.asked == ["POST /api/models/wake/m"]


@pytest.mark.parametrize("driver", [None, ""])
async def test_what_was_so_already_is_brief(
    told: RunAside, proxy: Answers, driver: str | None
) -> None:
    """There was no wait, and no driver is at work."""
    proxy.body |= {"state": "ready", "driver": driver, "phases": {}}

    assert (await told("wake", "m")).out == "m is ready\n"


@pytest.mark.parametrize("order", ["sleep", "wake"])
async def test_in_json_it_is_what_the_proxy_says(
    told: RunAside, proxy: Answers, order: str
) -> None:
    """Untouched."""
    assert (await told(order, "m", "--json")).json == proxy.body


@pytest.mark.parametrize("order", ["sleep", "wake"])
async def test_p65_a_refusal_is_one_line_and_1(told: RunAside, proxy: Answers, order: str) -> None:
    """The proxy's own reason."""
    proxy.status = 409
    proxy.body = {"error": {"message": "model 'm' can't sleep: sleepMode is off"}}

    outcome = await told(order, "m")

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "llmsnap: model 'm' can't sleep: sleepMode is off\n"


async def test_a_model_must_be_named(told: RunAside) -> None:
    """All at once is for `unload`."""
    assert (await told("sleep")).code == 2
