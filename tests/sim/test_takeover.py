"""Models on the simulated GPU outlive a proxy that is killed; the next one goes on with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.gpu.swaps import MODELS, config_for, knows_how_to_sleep
from tests.helpers.processes import lives
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually
from tests.sim.gauge import with_repository
from tests.sim.rig import Rig
from tests.sim.world import World

pytestmark = pytest.mark.e2e

PROMPT = "Once upon a time"
ADOPT = "runtime: {adopt: true}"


@asynccontextmanager
async def proxy_on(world: World, folder: Path, config: str) -> AsyncIterator[ProxyProcess]:
    """The proxy over `config` in that world."""
    async with running_proxy(config, folder, env=with_repository(world.environment)) as running:
        yield running


async def left_asleep_and_awake(world: World, folder: Path, config: str) -> dict[str, int]:
    """Kill a proxy whose first model sleeps and whose second is awake; return their processes."""
    async with proxy_on(world, folder, config) as running:
        for model in MODELS:
            await running.chat(model, PROMPT)
            await knows_how_to_sleep(running, model)
        shown = await running.models()
        assert [shown[model]["state"] for model in MODELS] == ["asleep", "ready"]
        running.process.kill()
        await asyncio.to_thread(running.process.wait)
    pids = {model: int(shown[model]["pid"]) for model in MODELS}
    assert all(map(lives, pids.values()))
    return pids


async def cached(running: ProxyProcess, model: str) -> int:
    """Ask PROMPT of `model`; return how much of it was in its cache."""
    return int((await running.chat(model, PROMPT))["timings"]["cache_n"])


async def test_both_are_gone_on_with_and_their_conversations_are_there(
    world: World, tmp_path: Path
) -> None:
    """The one that is checkpointed sleeps on until it is asked, and the other makes room then."""
    config = config_for(128, extra=[ADOPT])
    pids = await left_asleep_and_awake(world, tmp_path, config)
    async with proxy_on(world, tmp_path, config) as running:
        shown = await running.models()
        assert [shown[model]["state"] for model in MODELS] == ["asleep", "ready"]
        assert shown["first"]["driver"] == "cuda"
        for model in (*reversed(MODELS), "second"):
            assert await cached(running, model) == len(PROMPT)
        shown = await running.models()
        assert {model: shown[model]["pid"] for model in MODELS} == pids
    assert not any(map(lives, pids.values()))
    assert "OUT_OF_MEMORY" not in running.log


async def test_one_that_the_driver_doesnt_call_checkpointed_is_ended(
    world: World, tmp_path: Path
) -> None:
    """Somebody has restored it meanwhile; the next request starts it afresh."""
    config = config_for(128, extra=[ADOPT])
    pids = await left_asleep_and_awake(world, tmp_path, config)
    psutil.Process(pids["second"]).kill()  # which makes room
    caller = await Rig.simulated(world)
    try:
        await caller.calls(pids["first"], "restore", "unlock")
    finally:
        await caller.aclose()
    async with proxy_on(world, tmp_path, config) as running:
        await eventually(lambda: f"ending pid {pids['first']}" in running.log)
        await running.logs("the driver doesn't say that pid")
        await eventually(lambda: not lives(pids["first"]))
        assert await cached(running, "first") == 0
