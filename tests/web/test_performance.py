"""The machine's load over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from aiohttp.test_utils import TestClient, TestServer

from llmsnap.telemetry.performance import Performance
from llmsnap.web.performance import PerformanceRoutes
from tests.web.fleet import config_of, front_of


async def test_samples_are_shown() -> None:
    """All, or those after a moment; a moment that is none is named."""
    performance = Performance(5.0, list)
    await performance.sample()
    app = front_of(config_of("a"), more=PerformanceRoutes(performance).routes())
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    async with TestClient(TestServer(app)) as client:
        every = await (await client.get("/api/performance")).json()
        none = await (await client.get(f"/api/performance?after={later}")).json()
        wrong = await client.get("/api/performance?after=noon")

    assert every["enabled"] is True
    assert every["sys_stats"][0]["mem_total_mb"] > 100
    assert every["gpu_stats"] == none["sys_stats"] == []
    assert wrong.status == 400


async def test_without_samples_it_says_so() -> None:
    """503, as llama-swap does."""
    app = front_of(config_of("a"), more=PerformanceRoutes(None).routes())
    async with TestClient(TestServer(app)) as client, client.get("/api/performance") as answer:
        assert answer.status == 503
        assert await answer.json() == {"enabled": False}
