"""A real Prometheus scrapes a proxy that swaps real models: every panel and alert has its data."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.conftest import ONE_AT_A_TIME, Configure
from tests.e2e.test_sessions import LONG, Talk, say
from tests.e2e.test_sleep import IMPATIENT, TO_MAKE_ROOM, known, streamed
from tests.helpers.llama import server_environment
from tests.helpers.prometheus import Prometheus, running_prometheus
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.swap import swap
from tests.sim.fixtures import libraries, make_world, world
from tests.sim.world import World
from tests.test_dashboards import DASHBOARDS, RULES, expressions

__all__ = ["libraries", "make_world", "swap", "world"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.usefixtures("swap")]

KEY = "for-the-scraper"
VARIABLES = {"window": "5m", "__rate_interval": "30s", "datasource": "prometheus"}
ROUNDS = 8


@pytest.fixture
async def proxy(configure: Configure, world: World, tmp_path: Path) -> AsyncIterator[ProxyProcess]:
    """Two models that sleep to make room for each other, beside a simulated GPU, behind a key."""
    world.turn(gpu_percent=37, power_mw=120_000)
    head = f"{ONE_AT_A_TIME}\n{IMPATIENT}\napiKeys: [{KEY}]"
    config = configure(head, sleep=TO_MAKE_ROOM, more="    timeSlice: 100ms")
    environ = {**world.environment, **server_environment()}
    paths = (server_environment()["LD_LIBRARY_PATH"], world.environment["LD_LIBRARY_PATH"])
    environ["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with running_proxy(config, tmp_path, env=environ, headers=headers) as running:
        for model in "ab":
            await running.chat(model)
            await known(running, model)
        yield running


async def live(proxy: ProxyProcess, turn: int) -> None:
    """All that can happen: wakes, starts, sleeps, pauses, conversations that come back, errors."""
    reading = asyncio.ensure_future(read(proxy))
    await proxy.becomes("a", "ready")
    await proxy.chat("b")  # in the middle of a's answer
    await reading
    await proxy.chat("a", "tell me more")
    await proxy.chat("a", "tell me more")
    talk: Talk = []
    await say(proxy, talk, f"{turn}: {LONG}", "b")
    await proxy.post("/api/models/unload/b")
    await say(proxy, talk, "go on", "b")
    status, _ = await proxy.post("/v1/chat/completions", {"model": "b", "messages": "none"})
    assert status >= 400


async def read(proxy: ProxyProcess) -> None:
    """Have `a` write for long enough to be paused."""
    async for _ in streamed(proxy, "a", 1000):
        pass


def for_all(expression: str) -> str:
    """An expression with its variables as they are when everything is chosen."""
    return re.sub(r"\$\{?(\w+)\}?", lambda name: VARIABLES.get(name[1], ".*"), expression)


async def without_data(prometheus: Prometheus) -> list[tuple[str, str]]:
    """The expressions that return nothing; each must be valid."""
    asked = [(title, for_all(e)) for path in DASHBOARDS for title, e in expressions(path)]
    return [(title, e) for title, e in asked if not await prometheus.ask(e)]


async def test_every_panel_has_data(proxy: ProxyProcess, tmp_path: Path) -> None:
    """Each expression of each dashboard parses and returns numbers; each rule is evaluated."""
    target = proxy.url.removeprefix("http://")
    async with running_prometheus(target, tmp_path, rules=RULES, key=KEY) as prometheus:
        for turn in range(ROUNDS):
            await live(proxy, turn)
            if not (missing := await without_data(prometheus)):
                break
        assert not missing
        assert set((await prometheus.rules()).values()) == {"ok"}
        swaps = await prometheus.ask("sum(llmsnap_swaps_total)")
        assert await proxy.state("a") in ("asleep", "ready", "stopped")
    assert swaps[0] >= 4
