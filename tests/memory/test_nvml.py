"""NvmlProbe against the simulated libnvidia-ml, in a process that can't tell it from a real one."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pynvml
import pytest

from llmsnap.memory import nvml
from llmsnap.memory.device import Readings, Vitals
from llmsnap.memory.nvml import NvmlProbe
from tests.gpu.holder import Holder
from tests.helpers.waiting import eventually
from tests.sim.fixtures import unshare
from tests.sim.gauge import Gauge
from tests.sim.rig import has_gpu
from tests.sim.world import MIB, World, card


@asynccontextmanager
async def gauge_of(world: World, *, wrapper: list[str] | None = None) -> AsyncIterator[Gauge]:
    gauge = await Gauge.start(world.environ(), period_s=1.0, patience_s=1.5, wrapper=wrapper or [])
    yield gauge
    await gauge.aclose()


async def test_reads_each_gpu_and_what_each_process_holds(world: World, gauge: Gauge) -> None:
    """A reading has name, UUID, total, free, and bytes by pid."""
    holder = await Holder.start(world.environ(), mib=128)

    (reading,) = (await gauge.read()).devices

    assert (reading.device, reading.name, reading.uuid) == (
        "gpu0",
        "Simulated 4090",
        world.cards[0].uuid,
    )
    held = (128 + world.knobs.context_mib) * MIB
    assert reading.processes == {holder.pid: held}
    assert reading.total_bytes == 24_576 * MIB
    assert reading.free_bytes == (24_576 - world.knobs.reserved_mib) * MIB - held
    await holder.kill()


async def test_stamps_readings_with_the_clock_that_it_was_given(gauge: Gauge) -> None:
    """The gauge's clock is the monotonic one, which all processes share."""
    before = time.monotonic()
    (reading,) = (await gauge.read()).devices
    assert before < reading.taken_at < time.monotonic()


async def test_reads_how_the_gpu_fares(world: World, gauge: Gauge) -> None:
    """Load, power, heat and the link to the machine; what a laptop doesn't tell is None."""
    world.turn(gpu_percent=75)
    (reading,) = (await gauge.read()).devices
    assert reading.vitals == Vitals(
        utilisation=0.75,
        power_w=21.5,
        power_limit_w=450,
        temperature_c=41,
        pcie_generation=1,
        pcie_width=16,
        pcie_max_generation=4,
        pcie_max_width=16,
    )
    assert reading.reserved_bytes == world.knobs.reserved_mib * MIB

    world.turn(power_mw=-1, gpu_percent=-1)
    (reading,) = (await gauge.read()).devices
    assert (reading.vitals.power_w, reading.vitals.utilisation) == (None, None)
    assert reading.vitals.temperature_c == 41


@pytest.mark.skipif(has_gpu(), reason="there is a driver here")
async def test_without_a_driver_the_fault_says_so() -> None:
    """No library: no devices, and words with a remedy."""
    gauge = await Gauge.start(os.environ)
    readings = await gauge.read()
    await gauge.aclose()
    assert readings.devices == ()
    assert "no NVIDIA driver" in readings.fault


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "modprobe nvidia"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "reboot"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidia"),
        (pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
    ],
    ids=["not-loaded", "mismatch", "permission", "unknown"],
)
async def test_says_why_nothing_can_be_read_and_recovers(
    world: World, gauge: Gauge, code: int, words: str
) -> None:
    """A driver that fails is asked anew at each reading."""
    world.turn(nvml_init=code)
    readings = await gauge.read()
    assert readings.devices == ()
    assert words in readings.fault

    world.turn(nvml_init=0)
    assert (await gauge.read()).fault == ""


async def test_a_reloaded_driver_costs_no_reading(world: World, gauge: Gauge) -> None:
    """When the driver went and came between two readings, the second one has figures."""
    await gauge.read()
    world.turn(driver_loads=1)
    readings = await gauge.read()
    assert readings.fault == ""
    assert len(readings.devices) == 1


async def test_a_driver_that_goes_is_a_fault(world: World, gauge: Gauge) -> None:
    """When it went and stays away, there are no figures."""
    await gauge.read()
    world.turn(driver_loads=1, nvml_init=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    readings = await gauge.read()
    assert readings.devices == ()
    assert "isn't loaded" in readings.fault


async def test_a_lost_gpu_leaves_the_others_readable(make_world: Callable[..., World]) -> None:
    """What is lost is noted, and read again when it is back."""
    world = make_world(card(0), card(1))
    async with gauge_of(world) as gauge:
        assert len((await gauge.read()).devices) == 2

        world.turn(lost_gpu=0)
        for _ in range(2):  # the second reading begins with a new initialisation
            readings = await gauge.read()
            assert [reading.uuid for reading in readings.devices] == [world.cards[1].uuid]
            assert any("GPU is lost" in note for note in readings.notes)

        world.turn(lost_gpu=-1)
        await gauge.read()
        readings = await gauge.read()
    assert len(readings.devices) == 2
    assert readings.notes == ()


@pytest.mark.parametrize(
    ("now", "names"),
    [([1], ["gpu1"]), ([2, 1], ["gpu2", "gpu1"])],
    ids=["one-fell-off-the-bus", "one-was-exchanged"],
)
async def test_a_gpu_keeps_its_name(
    make_world: Callable[..., World], now: list[int], names: list[str]
) -> None:
    """Indices shift, so names go by UUID, and none is given to two."""
    world = make_world(card(0), card(1))
    async with gauge_of(world) as gauge:
        await gauge.read()
        world.plug(*(card(index) for index in now))
        world.turn(driver_loads=1)

        devices = (await gauge.read()).devices

    assert [gpu.uuid for gpu in devices] == [card(index).uuid for index in now]
    assert [gpu.device for gpu in devices] == names


@pytest.mark.parametrize("how", ["unknown", "unsupported", "denied"])
async def test_says_that_bytes_by_process_are_not_known(
    world: World, gauge: Gauge, how: str
) -> None:
    """Total and free are there all the same."""
    holder = await Holder.start(world.environ(), mib=32)
    world.turn(processes=how)
    readings = await gauge.read()
    (reading,) = readings.devices
    assert reading.processes is None
    assert reading.used_bytes > 32 * MIB
    assert any("gpu0: bytes by process aren't known" in note for note in readings.notes)
    assert any("by the difference in use around its start" in note for note in readings.notes)
    await holder.kill()
    readings = await gauge.read()
    assert readings.devices[0].processes is None, "nobody is listed, and that says nothing"
    assert any("gpu0: bytes by process aren't known" in note for note in readings.notes)


async def test_pids_mean_nothing_in_a_container(world: World) -> None:
    """In a pid namespace of its own the probe doesn't believe the driver's pids."""
    wrapper = unshare()
    holder = await Holder.start(world.environ(), mib=32)
    async with gauge_of(world, wrapper=wrapper) as gauge:
        readings = await gauge.read()
    await holder.kill()
    assert readings.devices[0].processes is None
    assert any("--pid=host" in note for note in readings.notes)


async def test_a_split_card_is_said_to_be_split(world: World) -> None:
    """With MIG, bytes by process aren't known."""
    world.turn(mig=1)
    async with gauge_of(world) as gauge:
        readings = await gauge.read()
    assert readings.devices[0].mig
    assert readings.devices[0].processes is None
    assert any("MIG" in note for note in readings.notes)


async def test_a_card_that_can_not_be_split_is_no_fault(world: World) -> None:
    """Most cards answer the question for MIG with "not supported"."""
    world.turn(mig=-1)
    async with gauge_of(world) as gauge:
        readings = await gauge.read()
    assert not readings.devices[0].mig
    assert readings.notes == ()


async def test_an_old_driver_is_asked_in_the_old_way(
    make_world: Callable[..., World], old_libraries: Path
) -> None:
    """Without the second form of the memory call, the first gives the same figures."""
    world = make_world(libraries=old_libraries)
    async with gauge_of(world) as gauge:
        (reading,) = (await gauge.read()).devices
    assert reading.free_bytes == (24_576 - world.knobs.reserved_mib) * MIB


async def test_a_card_without_memory_of_its_own_is_noted(world: World, gauge: Gauge) -> None:
    """Cards that share the machine's memory can't be read; that isn't a fault of the rest."""
    world.turn(memory_unsupported=1)
    readings = await gauge.read()
    assert readings.devices == ()
    assert readings.fault == ""
    assert any("can't be read" in note for note in readings.notes)


async def test_figures_of_a_stalled_driver_get_stale(world: World, gauge: Gauge) -> None:
    """The last figures are given out, and after three periods they are said to be old."""
    fresh = await gauge.read()
    world.turn(nvml_stall=1)

    last = await gauge.read()
    assert last == fresh

    async def is_stale() -> bool:
        return (await gauge.read()).stale

    await eventually(is_stale, what="stale")
    stale = await gauge.read()
    assert stale.devices == fresh.devices
    assert any("NVML doesn't answer" in note for note in stale.notes)

    world.turn(nvml_stall=0)
    again = await gauge.read()
    assert not again.stale
    assert again.devices[0].taken_at > fresh.devices[0].taken_at


async def test_a_driver_that_stalls_from_the_start_is_a_fault(world: World, gauge: Gauge) -> None:
    """There is no last reading to give out then."""
    world.turn(nvml_stall=1)
    readings = await gauge.read()
    assert readings.devices == ()
    assert "hasn't answered" in readings.fault


async def test_closing_does_not_wait_for_a_stalled_driver(world: World) -> None:
    """A process with a call that never returns ends all the same."""
    world.turn(nvml_stall=1)
    async with asyncio.timeout(30), gauge_of(world) as gauge:
        await gauge.read()


class Session:
    """Stands in for NVML where only the thread matters."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.numbers = itertools.count(1)

    def read(self) -> Readings:
        number = next(self.numbers)
        self.begun.release()
        assert self.gate.wait(60)
        return Readings(notes=(f"reading {number}",))

    def end(self) -> None:
        pass


async def test_a_reading_is_never_older_than_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks while a reading is under way gets the next one."""
    session = Session()
    monkeypatch.setattr(nvml, "_Session", lambda clock: session)
    probe = NvmlProbe(clock=time.monotonic)

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(probe.read())
        await asyncio.to_thread(session.begun.acquire)
        second, third = tasks.create_task(probe.read()), tasks.create_task(probe.read())
        await asyncio.sleep(0)
        session.gate.set()

    assert first.result().notes == ("reading 1",)
    assert second.result().notes == third.result().notes == ("reading 2",)
    await probe.aclose()


async def test_a_bug_in_reading_is_a_fault_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread outlives what it didn't expect, and says what it was."""
    session = Session()
    session.gate.set()
    monkeypatch.setattr(nvml, "_Session", lambda clock: session)
    monkeypatch.setattr(session, "read", lambda: [][0])
    probe = NvmlProbe(clock=time.monotonic)

    assert "IndexError" in (await probe.read()).fault
    monkeypatch.undo()
    monkeypatch.setattr(session, "read", Readings)
    assert (await probe.read()).fault == ""
    assert "crashed" in caplog.text
    await probe.aclose()
