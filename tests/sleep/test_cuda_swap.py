"""The step below a checkpoint, with real swap and the simulated GPU: out of RAM, and back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import suppress

import pytest

from llmsnap.errors import SleepRefused, WakeFailed, WakeRefused
from llmsnap.memory.host import Host
from llmsnap.sleep import proctree
from llmsnap.sleep.cuda import CudaDriver
from llmsnap.sleep.cuda_steps import Limits
from llmsnap.sleep.driver import Moved, Supported, Target, Unsupported
from llmsnap.sleep.processes import look
from llmsnap.sleep.secondstep import SecondStep
from tests.gpu.holder import Holder
from tests.helpers.waiting import eventually
from tests.sim.gauge import Gauge
from tests.sim.world import MIB, World
from tests.sleep.cuda_bench import Bench

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs Linux and CAP_SYS_NICE"
)

HASTY = Limits(settle_s=0.3)
SIZE = 128


class Machine(Host):
    """This one, which may have less RAM left."""

    short = False

    async def room_for(self, pid: int) -> int:
        """Say that there is none when it is short."""
        return 0 if self.short else await super().room_for(pid)


async def anyone(pids: Collection[int], host: str, port: int) -> bool:
    """Whoever is asked for listens."""
    return True


class Setting:
    """A process of SIZE MiB that sleeps, and what can be done with it."""

    def __init__(self, bench: Bench, step: SecondStep, machine: Machine, holder: Holder) -> None:
        self.bench = bench
        self.step = step
        self.machine = machine
        self.holder = holder
        self.target: Target = bench.target(holder)
        self.driver: CudaDriver = bench.driver_with(below=step, limits=HASTY)

    @property
    def swapped_mib(self) -> int:
        """How much of it is in swap."""
        with suppress(ProcessLookupError):
            return self.machine.usage(proctree.pids(self.holder.pid)).swap_bytes // MIB
        return 0

    @property
    def restores(self) -> int:
        """How often the driver was asked to restore it."""
        return [op for op, _ in self.bench.world.calls(self.holder.pid)].count("restore")


@pytest.fixture
async def asleep(world: World, gauge: Gauge) -> AsyncIterator[Setting]:
    """One that sleeps in RAM."""
    bench, machine = Bench(world, gauge), Machine()
    step = SecondStep(machine, anyone)
    setting = Setting(bench, step, machine, await bench.holder(mib=SIZE))
    await setting.driver.sleep(setting.target)
    yield setting
    await bench.close()


async def test_what_sleeps_moves_on_to_swap_and_comes_back_whole(
    swap: None, asleep: Setting
) -> None:
    """It is never stopped, and all of it is in RAM again before the driver restores it."""
    verdict = await asleep.step.probe(asleep.target)
    assert isinstance(verdict, Supported)
    assert verdict.tier == "swap"
    assert SIZE * MIB < verdict.tier_bytes < 2 * SIZE * MIB

    out = await asleep.step.page_out(asleep.target)
    assert asleep.swapped_mib >= SIZE - 8
    assert out.bytes["ram"] < -(SIZE - 8) * MIB
    seen = look(asleep.holder.pid)
    assert seen is not None
    assert not seen.stopped

    await asleep.driver.wake(asleep.target)
    assert asleep.swapped_mib < 8
    assert await asleep.holder.is_whole()


async def test_a_full_swap_leaves_it_asleep_in_ram(little_swap: None, asleep: Setting) -> None:
    """It says so before, and when it is tried all the same; a wake finds it well."""
    verdict = await asleep.step.probe(asleep.target)
    assert isinstance(verdict, Unsupported)
    assert "swap is short" in verdict.reason
    with pytest.raises(SleepRefused, match="is swap full"):
        await asleep.step.page_out(asleep.target)
    await asleep.driver.wake(asleep.target)
    assert await asleep.holder.is_whole()


async def test_a_wake_calls_off_what_is_paged_out(swap: None, asleep: Setting) -> None:
    """What has left by then comes back, and what was about to leave doesn't."""
    under_way = asyncio.ensure_future(asleep.step.page_out(asleep.target))
    await eventually(lambda: asleep.swapped_mib > 0 or under_way.done())
    under_way.cancel()
    await asleep.driver.wake(asleep.target)
    assert asleep.swapped_mib < 16
    assert await asleep.holder.is_whole()


async def test_killed_while_it_is_paged_out(swap: None, asleep: Setting) -> None:
    """Both calls say that it has ended, in time."""
    under_way = asyncio.ensure_future(asleep.step.page_out(asleep.target))
    await eventually(lambda: asleep.swapped_mib > 0 or under_way.done())
    await asleep.holder.kill()
    async with asyncio.timeout(30):
        with suppress(SleepRefused):  # if it wasn't done already
            await under_way
        with pytest.raises(WakeFailed, match="died while it was asleep"):
            await asleep.driver.wake(asleep.target)


async def test_nothing_comes_back_before_the_gpu_has_room(swap: None, asleep: Setting) -> None:
    """RAM isn't filled for a wake that can't be."""
    await asleep.step.page_out(asleep.target)
    glutton = await asleep.bench.holder(mib=0)
    await glutton.do("fill", keep_mib=200)
    with pytest.raises(WakeRefused, match="gpu0 has"):
        await asleep.driver.wake(asleep.target)
    assert asleep.swapped_mib >= SIZE - 8
    await glutton.kill()
    await asleep.driver.wake(asleep.target)
    assert await asleep.holder.is_whole()


async def test_nothing_comes_back_without_room_in_ram(swap: None, asleep: Setting) -> None:
    """It sleeps on until there is, and nothing else is driven out for it."""
    await asleep.step.page_out(asleep.target)
    asleep.machine.short = True
    with pytest.raises(WakeRefused, match="RAM is short"):
        await asleep.driver.wake(asleep.target)
    assert (asleep.restores, asleep.swapped_mib >= SIZE - 8) == (0, True)
    asleep.machine.short = False
    await asleep.driver.wake(asleep.target)
    assert await asleep.holder.is_whole()


class Overtaken(SecondStep):
    """While it brings something back, another program takes the GPU."""

    glutton: Holder

    async def bring_back(self, target: Target) -> Moved:
        """Bring it back, a moment too late."""
        moved = await super().bring_back(target)
        await self.glutton.do("fill", keep_mib=200)
        return moved


async def test_a_wake_that_is_refused_late_leaves_it_where_it_was(
    swap: None, world: World, gauge: Gauge
) -> None:
    """The books say that it is in swap, and so it is."""
    bench, machine = Bench(world, gauge), Machine()
    step = Overtaken(machine, anyone)
    asleep = Setting(bench, step, machine, await bench.holder(mib=SIZE))
    step.glutton = await bench.holder(mib=0)
    await asleep.driver.sleep(asleep.target)
    await step.page_out(asleep.target)
    with pytest.raises(WakeRefused, match="gpu0 has"):
        await asleep.driver.wake(asleep.target)
    assert (asleep.restores, asleep.swapped_mib >= SIZE - 8) == (0, True)
    await bench.close()
