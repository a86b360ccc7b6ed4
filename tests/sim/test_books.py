"""The real command line on two simulated cards: what fits is up, and nothing overcommits them.

The simulated driver refuses memory that isn't there, as real ones do, and the stand-in for a server
ends on that: a load that can't be held shows in the log.
"""

from __future__ import annotations

import asyncio
import random
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.helpers.ports import free_port, free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually
from tests.memory.looks import GIB
from tests.sim.gauge import python_module, with_repository
from tests.sim.world import World, card

pytestmark = pytest.mark.e2e

AWAKE_OR_STOPPED = "sleep: {mode: off}"
ASLEEP = "sleep: {ramBudget: 200GiB, after: 0}"
"""The memory that the simulation puts aside is none, so there may be much of it."""
EIGHT = {f"m{n}": (n % 2, size) for n, size in enumerate((6, 7, 8, 9, 10, 11, 12, 13))}
"""The card and the GiB of each of eight models: 36 and 40 GiB on cards of 24."""


@pytest.fixture
def cards(make_world: Callable[..., World]) -> World:
    """A machine with two cards of 24 GiB."""
    return make_world(card(0), card(1))


def configuration(models: Mapping[str, tuple[int, int]], *head: str) -> str:
    """Models that say nothing of their memory, each on one card."""
    lines = [*head, f"startPort: {free_ports(len(models))}", "models:"]
    for model, (gpu, gib) in models.items():
        options = ("--port", "${PORT}", "--mib", str(gib * 1024))
        command = shlex.join(python_module("tests.sim.standin", *options))
        lines += [f"  {model}:", f"    cmd: {command}", f'    env: ["CUDA_VISIBLE_DEVICES={gpu}"]']
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def proxy_on(world: World, folder: Path, config: str) -> AsyncIterator[ProxyProcess]:
    """The proxy over `config`; whatever happened, no load was for memory that wasn't there."""
    environ = with_repository(world.environment)
    async with running_proxy(config, folder, env=environ) as running:
        yield running
        assert "OUT_OF_MEMORY" not in running.log


@asynccontextmanager
async def another_program(world: World, gib: int, *, gpu: int = 0) -> AsyncIterator[None]:
    """Somebody else who holds memory of a card while the block lasts."""
    options = ("--port", str(free_port()), "--mib", str(gib * 1024))
    environ = with_repository(world.environ({"CUDA_VISIBLE_DEVICES": str(gpu)}))
    command = python_module("tests.sim.standin", *options)
    process = await asyncio.create_subprocess_exec(*command, env=environ)
    try:
        await eventually(lambda: world.record(process.pid) is not None)
        await eventually(lambda: sum(_bytes_of(world, process.pid)) > gib * GIB)
        yield
    finally:
        process.kill()
        await process.wait()


def _bytes_of(world: World, pid: int) -> tuple[int, ...]:
    record = world.record(pid)
    return record.bytes if record else ()


async def devices(running: ProxyProcess) -> dict[str, dict[str, Any]]:
    """Return `/api/devices` by name."""
    _, answer = await running.get("/api/devices")
    return {device["device"]: device for device in answer["devices"]}


async def foreign(running: ProxyProcess, device: str, *, least: float, most: float = 99) -> None:
    """Wait until so many GiB of a device count as other programs'."""

    async def counted() -> bool:
        used = (await devices(running))[device]["foreign_bytes"]
        return bool(least <= used / GIB <= most)

    await eventually(counted, what=f"{least} to {most} GiB of {device} are others'")


async def known(running: ProxyProcess, *models: str) -> dict[str, dict[str, int]]:
    """Return what is known to be needed of `models`, once it is known of all."""

    async def all_known() -> bool:
        shown = await running.models()
        return all(shown[model]["need_bytes"] for model in models)

    await eventually(all_known, what=f"needs of {models}")
    shown = await running.models()
    return {model: dict(shown[model]["need_bytes"]) for model in models}


@pytest.mark.slow
@pytest.mark.parametrize("sleep", [AWAKE_OR_STOPPED, ASLEEP], ids=["stopped", "asleep"])
async def test_a4_eight_models_on_two_cards(cards: World, tmp_path: Path, sleep: str) -> None:
    """Nobody wrote what they need: all are served, by and by more of them beside each other."""
    rng = random.Random(7)

    async def client(running: ProxyProcess) -> None:
        for _ in range(8):
            await running.chat(rng.choice(sorted(EIGHT)), "hi")

    async with proxy_on(cards, tmp_path, configuration(EIGHT, sleep)) as running:
        for model in EIGHT:
            await running.chat(model, "hi")
            await known(running, model)
        await asyncio.gather(*(client(running) for _ in range(3)))
        shown = await running.models()
        seen = await devices(running)

    context = cards.knobs.context_mib * 1024**2
    for model, (gpu, gib) in EIGHT.items():
        need = shown[model]["need_bytes"]
        assert gib * GIB + context <= need[f"gpu{gpu}"] < gib * GIB + context + GIB // 16
        assert f"gpu{1 - gpu}" not in need
        assert shown[model]["footprint"]["source"] == "learned"
    up = [model for model, entry in shown.items() if entry["state"] == "ready"]
    assert len(up) >= 3, up
    for name in ("gpu0", "gpu1"):
        assert seen[name]["capacity_bytes"] == 24 * GIB - GIB // 2
        assert sum(seen[name]["models"].values()) <= seen[name]["capacity_bytes"]


async def test_u73_another_program_takes_memory_in_the_middle(cards: World, tmp_path: Path) -> None:
    """It evicts nobody, keeps out who doesn't fit beside it, and is waited for."""
    models = {"a": (0, 8), "b": (0, 14)}
    config = configuration(models, AWAKE_OR_STOPPED)
    async with proxy_on(cards, tmp_path, config) as running:
        for model in ("b", "a"):
            await running.chat(model, "hi")
            await known(running, model)
        await running.post("/api/models/unload/b")
        async with another_program(cards, 10):
            await foreign(running, "gpu0", least=10)
            waiting = asyncio.ensure_future(running.chat("b", "hi"))
            await eventually(lambda: "b" in running.log and not waiting.done())
            await running.chat("a", "hi")
            assert await running.state("a") == "ready"
            assert await running.state("b") == "stopped"
        await waiting
        shown = await running.models()
    assert (shown["a"]["state"], shown["a"]["generation"]) == ("ready", 1)
    assert shown["b"]["state"] == "ready"


async def test_u18_memory_that_comes_back_late_is_waited_for(cards: World, tmp_path: Path) -> None:
    """The other's process is gone at once, its memory three seconds later."""
    cards.turn(late_ms=3000)
    models = {"a": (0, 14), "b": (0, 14)}
    config = configuration(models, AWAKE_OR_STOPPED)
    async with proxy_on(cards, tmp_path, config) as running:
        await running.chat("a", "hi")
        await known(running, "a")
        _, answer = await running.post("/api/models/load/b")
    assert answer["phases"]["evict_s"] >= 2.5
    assert "didn't come back" not in running.log


async def test_u19_what_stays_away_is_said_and_never_loaded_into(
    cards: World, tmp_path: Path
) -> None:
    """After the settle time it counts as others', and the next one starts when it is there."""
    models = {"a": (0, 14), "b": (0, 14)}
    config = configuration(models, AWAKE_OR_STOPPED, "memory: {settleTimeout: 500ms}")
    async with proxy_on(cards, tmp_path, config) as running:
        for model in ("a", "b"):
            await running.chat(model, "hi")
            await known(running, model)
        cards.turn(late_ms=4000)
        loading = asyncio.ensure_future(running.chat("a", "hi"))
        await foreign(running, "gpu0", least=13)
        told = "of gpu0 didn't come back within 0.5 s (memory.settleTimeout)"
        await eventually(lambda: told in running.log)
        await loading


async def test_nvml_goes_and_comes_back(cards: World, tmp_path: Path) -> None:
    """Models are swapped meanwhile, by what the books say; the devices are shown as lost."""
    models = {"a": (0, 14), "b": (0, 14)}
    config = configuration(models, AWAKE_OR_STOPPED)

    async with proxy_on(cards, tmp_path, config) as running:

        async def gpu0_is(state: str) -> bool:
            return bool((await devices(running))["gpu0"]["state"] == state)

        for model in ("a", "b"):
            await running.chat(model, "hi")
            await known(running, model)
        cards.turn(driver_loads=1, nvml_init=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        await eventually(lambda: gpu0_is("lost"), what="gpu0 is lost")
        await running.chat("a", "hi")
        await running.chat("b", "hi")
        assert await running.state("a") == "stopped"
        await running.logs("the NVIDIA driver isn't loaded", times=1)
        cards.turn(nvml_init=0)
        await eventually(lambda: gpu0_is("fresh"), what="gpu0 is back")
        await running.chat("a", "hi")
    await running.logs("memory: everything can be read again")


async def test_without_bytes_by_process_needs_are_learned_all_the_same(
    cards: World, tmp_path: Path
) -> None:
    """By what is used before a start and after: then two that fit stay up together."""
    cards.turn(processes="unknown")
    models = {"a": (0, 9), "b": (0, 10), "c": (0, 11)}
    config = configuration(models, AWAKE_OR_STOPPED)
    async with proxy_on(cards, tmp_path, config) as running:
        needs: dict[str, dict[str, int]] = {}
        for model in models:
            await running.chat(model, "hi")
            needs |= await known(running, model)
        for model in ("a", "b"):
            await running.chat(model, "hi")
        shown = await running.models()
    assert shown["b"]["state"] == "ready"
    assert sum(entry["state"] == "ready" for entry in shown.values()) == 2
    for model, (_, gib) in models.items():
        assert gib <= needs[model]["gpu0"] / GIB < gib + 0.2
