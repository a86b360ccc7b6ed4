"""The real command line on the simulated GPU: it can't tell, and its clients notice nothing."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.gpu.holder import Holder
from tests.gpu.swaps import config_for, knows_how_to_sleep
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually
from tests.sim.gauge import with_repository
from tests.sim.world import World

pytestmark = pytest.mark.e2e

PROMPT = "Once upon a time"


@asynccontextmanager
async def first_asleep(
    world: World, folder: Path, mib: int = 128, *, measured: bool = True
) -> AsyncIterator[ProxyProcess]:
    """Give a proxy whose first model has answered PROMPT and sleeps, and whose second is awake.

    Not `measured`: it doesn't know what other programs have of the GPU.
    """
    environ, config = with_repository(world.environment), config_for(mib)
    if not measured:
        config = config.replace("memory:\n", "memory:\n  mode: off\n")
    async with running_proxy(config, folder, env=environ) as running:
        for model in ("first", "second"):
            assert await cached(running, model) == 0
            await knows_how_to_sleep(running, model)
        assert await running.state("first") == "asleep"
        yield running


async def cached(running: ProxyProcess, model: str) -> int:
    """Ask PROMPT of `model`; return how much of it was in its cache."""
    return int((await running.chat(model, PROMPT))["timings"]["cache_n"])


async def pid_of(running: ProxyProcess, model: str) -> int:
    return int((await running.models())[model]["pid"])


async def test_conversations_are_there_after_each_swap(world: World, tmp_path: Path) -> None:
    """Both models take turns on a card that holds one, and neither is ever started again."""
    async with first_asleep(world, tmp_path) as running:
        for _ in range(3):
            for model in ("first", "second"):
                assert await cached(running, model) == len(PROMPT)
        shown = await running.models()
    assert [shown[model]["generation"] for model in ("first", "second")] == [1, 1]
    assert shown["first"]["driver"] == "cuda"
    assert shown["first"]["last_wake"]["bytes"]["gpu0"] > 128 * 1024**2


async def test_a_model_that_must_go_at_once_sleeps_all_the_same(
    world: World, tmp_path: Path
) -> None:
    """CUDA is started along with it, and its victim's turn waits for the word of it."""
    environ = with_repository(world.environment)
    config = config_for(128, "--load-s", "1.5")
    async with running_proxy(config, tmp_path, env=environ) as running:
        assert await cached(running, "first") == 0
        assert await cached(running, "second") == 0
        assert await running.state("first") == "asleep"
        assert await cached(running, "first") == len(PROMPT)


async def test_a_wake_without_room_is_tried_again(world: World, tmp_path: Path) -> None:
    """Another program has the GPU meanwhile; the request waits, and its conversation is kept."""
    async with first_asleep(world, tmp_path, measured=False) as running:
        glutton = await Holder.start(world.environ())
        await glutton.do("fill", keep_mib=300)
        async with asyncio.TaskGroup() as tasks:
            answer = tasks.create_task(cached(running, "first"))
            await eventually(lambda: "model first: waking -> asleep" in running.log, timeout_s=60)
            await glutton.kill()
        assert answer.result() == len(PROMPT)
        assert (await running.models())["first"]["generation"] == 1
        assert re.search(r"gpu0 has [\d.]+ [MG]iB free, and it needs", running.log)


async def test_what_comes_back_quicker_by_a_start_is_stopped(world: World, tmp_path: Path) -> None:
    """Once a wake was seen to be slow; the next eviction says why."""
    world.turn(restore_mibps=80)
    async with first_asleep(world, tmp_path, mib=320) as running:
        text = "Once upon a time there was a card with a very slow bus"
        for model in ("first", "second"):
            await running.chat(model, text)
        shown = (await running.models())["first"]
        assert shown["state"] == "stopped"
        assert "a wake would take about 4." in shown["sleep_refusals"]["cuda"]
        await running.logs("model first: stays awake: a wake would take about 4.")


async def test_no_request_of_any_kind_reaches_a_sleeping_server(
    world: World, tmp_path: Path
) -> None:
    """Looking at a model neither wakes nor crashes it."""
    async with first_asleep(world, tmp_path) as running:
        for path in ("props", "slots", "metrics", "v1/models", "health"):
            await running.get(f"/upstream/first/{path}")
        await running.get("/v1/models")
        assert await running.state("first") == "asleep"
        assert await cached(running, "first") == len(PROMPT)


async def test_a_server_that_dies_asleep_is_started_again(world: World, tmp_path: Path) -> None:
    """The next request only takes longer."""
    async with first_asleep(world, tmp_path) as running:
        os.kill(await pid_of(running, "first"), signal.SIGKILL)
        assert await cached(running, "first") == 0
        assert (await running.models())["first"]["generation"] == 2


@pytest.mark.parametrize("fault", [2, 304, 1], ids=["out-of-memory", "poisoned", "invalid"])
async def test_a_failed_restore_becomes_a_start(world: World, tmp_path: Path, fault: int) -> None:
    """The request that asked for the wake is served all the same."""
    async with first_asleep(world, tmp_path) as running:
        asleep = await pid_of(running, "first")
        world.plan("restore", fault)
        assert await cached(running, "first") == 0
        assert await pid_of(running, "first") != asleep
        with pytest.raises(ProcessLookupError):
            os.kill(asleep, 0)


async def test_u121_managed_memory_becomes_a_stop(world: World, tmp_path: Path) -> None:
    """The driver can't checkpoint it; room is made all the same, and both are served."""
    environ = with_repository(world.environment)
    config = config_for(128, "--managed")
    async with running_proxy(config, tmp_path, env=environ) as running:
        assert await cached(running, "first") == 0
        await knows_how_to_sleep(running, "first")
        assert await cached(running, "second") == 0
        assert await running.state("first") == "stopped"
        await running.logs("the driver can't checkpoint it")
        assert await cached(running, "first") == 0


async def test_a_failed_checkpoint_becomes_a_stop(world: World, tmp_path: Path) -> None:
    """Room is made all the same."""
    async with first_asleep(world, tmp_path) as running:
        world.plan("checkpoint", 999)
        assert await cached(running, "first") == len(PROMPT)
        assert await running.state("second") == "stopped"


async def test_a_caller_killed_in_a_checkpoint_is_not_noticed(world: World, tmp_path: Path) -> None:
    """The driver goes on without it, and the next caller finds the model asleep."""
    async with first_asleep(world, tmp_path) as running:
        second = await pid_of(running, "second")
        world.turn(checkpoint_mibps=256)
        async with asyncio.TaskGroup() as tasks:
            answer = tasks.create_task(cached(running, "first"))
            await eventually(lambda: is_being_checkpointed(world, second))
            callers = [
                child for child in running.children() if "cuda_helper" in " ".join(child.cmdline())
            ]
            for caller in callers:
                caller.kill()
        assert len(callers) == 2
        assert answer.result() == len(PROMPT)
        assert await running.state("second") == "asleep"
        assert await cached(running, "second") == len(PROMPT)


async def test_sleeping_servers_are_killed_at_shutdown(world: World, tmp_path: Path) -> None:
    """They don't obey, and needn't; so the proxy ends at once and leaves nobody behind."""
    async with first_asleep(world, tmp_path) as running:
        children = running.children()
        assert await running.stop() == 0
        assert "still there" not in running.log  # nobody waited for them
        assert not any(child.is_running() for child in children)
        assert "SIGSEGV" not in running.log


async def test_a_killed_proxy_leaves_no_sleeping_server(world: World, tmp_path: Path) -> None:
    """The kernel ends them with it."""
    async with first_asleep(world, tmp_path) as running:
        children = running.children()
        await running.stop(signal.SIGKILL)
        await eventually(lambda: not any(child.is_running() for child in children))


async def test_what_sleeps_moves_on_to_swap_when_ram_is_short(
    swap: None, world: World, tmp_path: Path
) -> None:
    """Three take turns on a card that holds one, with RAM for one that sleeps: none is stopped."""
    names = ("first", "second", "third")
    # Each takes its 64 MiB and a context of 64 MiB along; two of them are too many.
    config = config_for(64, "--filled", models=names, extra=["sleep: {ramBudget: 200MiB}"])
    environ = with_repository(world.environment)
    async with running_proxy(config, tmp_path, env=environ) as running:
        for name in names:
            assert await cached(running, name) == 0
            await knows_how_to_sleep(running, name)
        for _ in range(2):
            for name in names:
                assert await cached(running, name) == len(PROMPT)
        shown = await running.models()
        log = running.log
    assert [shown[name]["generation"] for name in names] == [1, 1, 1]
    assert shown["first"]["below"] == "can be paged out from ram to swap"
    assert shown["first"]["last_page_out"]["bytes"]["swap"] > 48 * 1024**2
    assert "model first: paged out in " in log


def is_being_checkpointed(world: World, pid: int) -> bool:
    """Whether the driver has begun to, and isn't done."""
    record = world.record(pid)
    return record is not None and (record.state, record.next_state) == (1, 2)
