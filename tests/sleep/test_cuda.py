"""The CUDA driver against the simulated GPU: what moves, what is refused, and how it ends badly."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmsnap.errors import SleepFailed, SleepRefused, WakeFailed, WakeRefused
from llmsnap.memory.device import Readings
from llmsnap.sleep.cuda_steps import Limits
from llmsnap.sleep.driver import SleepDriver, Supported, Unsupported
from llmsnap.sleep.processes import look
from tests.gpu.holder import Holder
from tests.helpers.waiting import eventually
from tests.sim.gauge import Gauge
from tests.sim.world import MIB, World, card
from tests.sleep.cuda_bench import GIB, Bench

HASTY = Limits(settle_s=0.5)
"""For tests that wait for what doesn't come."""


@pytest.fixture
async def bench(world: World, gauge: Gauge) -> AsyncIterator[Bench]:
    """A driver on one card of 24 GiB."""
    bench = Bench(world, gauge)
    yield bench
    await bench.close()


@pytest.fixture
async def pair(make_world: Callable[..., World]) -> AsyncIterator[Bench]:
    """A driver on two cards."""
    world = make_world(card(0), card(1))
    gauge = await Gauge.start(world.environ())
    bench = Bench(world, gauge)
    yield bench
    await bench.close()
    await gauge.aclose()


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


async def reason(bench: Bench, holder: Holder, **changes: str) -> str:
    """Why `holder` can't be put to sleep; empty when it can."""
    verdict = await bench.driver.probe(bench.target(holder, env=changes))
    return verdict.reason if isinstance(verdict, Unsupported) else ""


# What it does.


async def test_memory_leaves_and_comes_back_whole(bench: Bench) -> None:
    """All of it is free in between, and not a byte is lost."""
    driver: SleepDriver = bench.driver
    empty = await bench.free_mib()
    holder = await bench.holder(mib=256)
    target = bench.target(holder)
    size = (256 + 64) * MIB

    slept = await driver.sleep(target)
    assert await bench.free_mib() == empty
    woken = await driver.wake(target)

    assert await bench.free_mib() == empty - size // MIB
    assert slept.bytes == {"gpu0": -size, "ram": size}
    assert woken.bytes == {"gpu0": size, "ram": -size}
    assert 0 < woken.seconds < 60
    assert await holder.is_whole()


async def test_sleeps_again_and_again(bench: Bench) -> None:
    """Nothing wears out."""
    holder = await bench.holder()
    target = bench.target(holder)
    for _ in range(10):
        await bench.driver.sleep(target)
        await bench.driver.wake(target)
    assert await holder.is_whole()


async def test_says_where_the_bytes_go(bench: Bench) -> None:
    """Into RAM, as many as the process holds; asked while it is asleep too."""
    target = bench.target(await bench.holder(mib=96))
    expected = Supported(tier="ram", tier_bytes=(96 + 64) * MIB, can_pause=False)
    assert await bench.driver.probe(target) == expected
    await bench.driver.sleep(target)
    assert await bench.driver.probe(target) == expected
    assert bench.driver.keeps_state
    assert bench.driver.kill_only


async def test_the_kernel_prefers_a_sleeping_process(bench: Bench) -> None:
    """While it holds its model in RAM, and no longer."""
    holder = await bench.holder()
    target = bench.target(holder)
    before = oom_score(holder.pid)
    await bench.driver.sleep(target)
    assert oom_score(holder.pid) == min(before + 500, 1000)
    await bench.driver.wake(target)
    assert oom_score(holder.pid) == before


async def test_finds_the_server_below_a_shell(bench: Bench) -> None:
    """The process that holds the memory need not be the one that was started."""
    holder = await bench.holder(wrapper=["sh", "-c", '"$@"; true', "sh"])
    moved = await bench.driver.sleep(bench.target(holder))
    assert moved.bytes["ram"] == (64 + 64) * MIB
    await bench.driver.wake(bench.target(holder))
    assert await holder.is_whole()


async def test_both_gpus_of_a_process_move_together(pair: Bench) -> None:
    """Where `sleep.multiGpu` allows it."""
    holder = await pair.holder(mib=96)
    await holder.do("spread", mib=128)
    target = pair.target(holder)
    driver = pair.driver_with(multi_gpu=True)
    moved = await driver.sleep(target)
    assert moved.bytes == {"gpu0": -160 * MIB, "gpu1": -192 * MIB, "ram": 352 * MIB}
    await driver.wake(target)
    assert await holder.is_whole()


async def test_learns_how_fast_memory_moves(bench: Bench) -> None:
    """Both ways; and then it predicts how long a wake takes, of a process that it has looked at."""
    driver, target = bench.driver, bench.target(await bench.holder(mib=256))
    assert driver.rates.sleep.learned is None
    await driver.sleep(target)
    assert driver.wake_s(target) is None
    await driver.wake(target)
    assert driver.rates.sleep.learned is not None
    predicted_s = driver.wake_s(target)
    assert predicted_s is not None
    assert 0.2 < predicted_s < 60
    assert driver.wake_s(replace(target, generation=2)) is None


# Where NVML doesn't tell what a process holds.


@pytest.mark.parametrize(
    "knobs",
    [{"processes": "unknown"}, {"processes": "unsupported"}, {"pid_offset": 1_000_000}],
    ids=["no-bytes", "no-list", "other-pids"],
)
async def test_without_bytes_by_process_it_measures(
    bench: Bench, knobs: dict[str, str | int]
) -> None:
    """At first all that is used is the bound; afterwards it knows what came back."""
    bench.world.turn(**knobs)
    holder = await bench.holder(mib=96)
    other = await bench.holder(mib=512)
    target = bench.target(holder)
    held = (96 + 64) * MIB
    bound = (24_576 - await bench.free_mib()) * MIB
    assert await bench.driver.probe(target) == Supported(tier="ram", tier_bytes=bound)
    bench.driver.rates.wake.learn(GIB, 1.0)
    assert bench.driver.wake_s(target) is None

    assert (await bench.driver.sleep(target)).bytes == {"gpu0": -held, "ram": held}
    await bench.driver.wake(target)

    assert await bench.driver.probe(target) == Supported(tier="ram", tier_bytes=held)
    assert await holder.is_whole()
    assert await other.is_whole()


async def test_without_bytes_by_process_it_still_sees_who_has_no_context(bench: Bench) -> None:
    """The checkpoint API itself tells."""
    bench.world.turn(processes="unknown")
    await bench.holder()
    idle = await asyncio.create_subprocess_exec("sleep", "60")
    assert "no process of it holds" in await reason(bench, Holder(idle))
    idle.kill()
    await idle.wait()


class Meddler:
    """Stands between NVML and the driver: does something to its n-th reading, and to no other.

    The third is the one before the lock, the fourth the one after the checkpoint.
    """

    def __init__(
        self, bench: Bench, number: int, meddle: Callable[[Readings], Awaitable[Readings]]
    ) -> None:
        self.reads = 0
        self._bench = bench
        self._number = number
        self._meddle = meddle

    async def read(self) -> Readings:
        self.reads += 1
        readings = await self._bench.gauge.read()
        return await self._meddle(readings) if self.reads == self._number else readings


def with_gpu(readings: Readings, **changes: Any) -> Readings:
    """Return `readings` with something else about the first GPU."""
    return replace(readings, devices=(replace(readings.devices[0], **changes),))


async def test_memory_that_comes_back_bit_by_bit_is_measured_whole(bench: Bench) -> None:
    """Where only free memory is known, it has settled when two figures agree."""
    bench.world.turn(processes="unknown")

    async def show_half(readings: Readings) -> Readings:
        return with_gpu(readings, free_bytes=readings.devices[0].free_bytes - 128 * MIB)

    target = bench.target(await bench.holder(mib=256))
    moved = await bench.driver_with(gpus=Meddler(bench, 4, show_half)).sleep(target)
    assert moved.bytes["ram"] == (256 + 64) * MIB


async def test_memory_that_others_take_meanwhile_is_reckoned_with(bench: Bench) -> None:
    """Another model that loads while this one leaves doesn't make it look awake."""

    async def load_another(_: Readings) -> Readings:
        await bench.holder(mib=512)
        return await bench.gauge.read()

    meddler = Meddler(bench, 4, load_another)
    target = bench.target(await bench.holder(mib=256))
    moved = await bench.driver_with(gpus=meddler, limits=HASTY).sleep(target)
    assert moved.bytes["ram"] == (256 + 64) * MIB
    assert meddler.reads == 4


async def test_a_process_that_is_still_listed_is_not_asleep_yet(bench: Bench) -> None:
    """However much is free: that may be somebody else's."""
    holder = await bench.holder(mib=256)

    async def list_it(readings: Readings) -> Readings:
        return with_gpu(readings, processes={holder.pid: 1})

    meddler = Meddler(bench, 4, list_it)
    await bench.driver_with(gpus=meddler).sleep(bench.target(holder))
    assert meddler.reads == 5


# What it refuses, and leaves as it was.


async def test_work_in_flight_is_not_cut_off(bench: Bench) -> None:
    """A process that doesn't get idle in time stays awake and well."""
    driver = bench.driver_with(limits=Limits(lock_timeout_s=0.1))
    holder = await bench.holder()
    await holder.do("work", seconds=5)
    with pytest.raises(SleepRefused, match="work isn't done") as caught:
        await driver.sleep(bench.target(holder))
    assert caught.value.intact
    assert await holder.is_whole()


async def test_a_stopped_process_is_not_touched(bench: Bench) -> None:
    """The driver's calls would hang."""
    holder = await bench.holder()
    await stop(holder)
    with pytest.raises(SleepRefused, match="stopped by a signal"):
        await bench.driver.sleep(bench.target(holder))
    assert bench.world.calls(holder.pid) == []
    holder.process.send_signal(signal.SIGCONT)
    assert await reason(bench, holder) == ""


async def test_u122_ram_and_cgroups_must_hold_the_copy(bench: Bench) -> None:
    """With a margin, or the kernel would kill it in the middle; the refusal tells both figures."""
    holder = await bench.holder(mib=448)
    bench.ram.room_bytes = 1 * GIB
    assert "RAM is short: its copy needs 1.5 GiB, and it may take 1.0" in await reason(
        bench, holder
    )
    with pytest.raises(SleepRefused, match="RAM is short"):
        await bench.driver.sleep(bench.target(holder))
    bench.ram.room_bytes = 2 * GIB
    assert await reason(bench, holder) == ""


async def test_a_process_without_gpu_memory_is_none_of_its_business(bench: Bench) -> None:
    """Also one that isn't there any more."""
    idle = await asyncio.create_subprocess_exec("sleep", "60")
    assert "no process of it holds memory of an NVIDIA GPU" in await reason(bench, Holder(idle))
    idle.kill()
    await idle.wait()
    assert "gone" in await reason(bench, Holder(idle))


async def test_several_processes_with_gpu_memory_are_refused(bench: Bench) -> None:
    """There is no way to move them as one."""
    holders = [await bench.holder(), await bench.holder()]
    parent = replace(bench.target(holders[0]), pid=os.getpid())
    with pytest.raises(SleepRefused, match="several of its processes hold GPU memory"):
        await bench.driver.sleep(parent)


async def test_u121_several_gpus_are_refused_unless_asked_for(pair: Bench) -> None:
    """One that is chosen by the environment is fine."""
    holder = await pair.holder()
    assert "2 GPUs" in await reason(pair, holder)
    assert await reason(pair, holder, CUDA_VISIBLE_DEVICES="0") == ""


async def test_u121_an_environment_that_rules_it_out_is_named(bench: Bench) -> None:
    """Managed memory would break the checkpoint."""
    holder = await bench.holder()
    found = await reason(bench, holder, GGML_CUDA_ENABLE_UNIFIED_MEMORY="1")
    assert "GGML_CUDA_ENABLE_UNIFIED_MEMORY" in found


async def test_a_split_card_is_refused(bench: Bench) -> None:
    """MIG."""
    holder = await bench.holder()
    bench.world.turn(mig=1, driver_loads=1)
    assert "MIG" in await reason(bench, holder)


async def test_a_system_that_can_not_is_asked_once(bench: Bench, tmp_path: Path) -> None:
    """The reason is remembered, and no process is started for it again."""
    bench.world.turn(cuda=12040)
    holder = await bench.holder()
    for _ in range(3):
        assert "too old" in await reason(bench, holder)
    assert bench.client.hellos == 1


async def test_wsl_is_refused(bench: Bench, tmp_path: Path) -> None:
    """Its libcuda has no checkpoints."""
    (tmp_path / "version").write_text("Linux version 5.15.1-microsoft-standard-WSL2")
    bench.driver_with(proc=tmp_path)
    assert "WSL" in await reason(bench, await bench.holder())


async def test_without_a_driver_nothing_is_started(bench: Bench) -> None:
    """NVML's fault is enough."""
    holder = await bench.holder()
    bench.world.turn(nvml_init=9, driver_loads=1)
    assert "isn't loaded" in await reason(bench, holder)
    assert bench.client.hellos == 0


async def test_prepared_it_has_its_processes_before_anybody_asks(bench: Bench) -> None:
    """The first look at a model is quick then."""
    await bench.driver.prepare()
    begun = psutil.Process().children()
    assert sum("cuda_helper" in " ".join(child.cmdline()) for child in begun) == 2
    assert await reason(bench, await bench.holder()) == ""
    assert bench.client.hellos == 1


async def test_without_a_gpu_nothing_is_prepared(bench: Bench) -> None:
    """Neither without a driver, nor with one that knows no card."""
    bench.world.plug()
    await bench.driver.prepare()
    bench.world.turn(nvml_init=9, driver_loads=1)
    await bench.driver.prepare()
    assert bench.client.hellos == 0


async def test_old_figures_decide_nothing(bench: Bench) -> None:
    """While NVML stalls, nobody is put to sleep and nobody woken; then both go well."""
    driver = bench.driver_with(limits=HASTY)
    holder = await bench.holder()
    target = bench.target(holder)

    async def is_stale() -> bool:
        return (await bench.gauge.read()).stale

    await bench.gauge.read()
    bench.world.turn(nvml_stall=1)
    await eventually(is_stale)
    with pytest.raises(SleepRefused, match="NVML doesn't answer"):
        await driver.sleep(target)
    bench.world.turn(nvml_stall=0)
    await driver.sleep(target)
    bench.world.turn(nvml_stall=1)
    await eventually(is_stale)
    with pytest.raises(WakeRefused, match="NVML doesn't answer") as caught:
        await driver.wake(target)
    assert caught.value.intact
    bench.world.turn(nvml_stall=0)
    await driver.wake(target)
    assert await holder.is_whole()


# How a sleep ends badly.


async def test_a_refused_checkpoint_ends_the_process_and_two_end_the_trying(bench: Bench) -> None:
    """The driver promises nothing after a fault; a model that fails twice isn't tried again."""
    for generation in (1, 2):
        holder = await bench.holder()
        await holder.do("manage", mib=16)
        with pytest.raises(SleepFailed, match="NOT_SUPPORTED") as caught:
            await bench.driver.sleep(bench.target(holder, generation=generation))
        assert not caught.value.intact
    well = await bench.holder()
    with pytest.raises(SleepRefused, match="two sleeps of it in a row failed"):
        await bench.driver.sleep(bench.target(well, generation=3))
    await bench.driver.sleep(bench.target(well, model="llama"))


async def test_a_sleep_that_goes_well_wipes_the_slate(bench: Bench) -> None:
    """Only failures in a row count."""
    bench.world.plan("checkpoint", 999, 0, 999, 0)
    for generation in range(1, 5):
        target = bench.target(await bench.holder(), generation=generation)
        if generation % 2:
            with pytest.raises(SleepFailed):
                await bench.driver.sleep(target)
        else:
            await bench.driver.sleep(target)


async def test_memory_that_does_not_come_back_is_no_sleep(bench: Bench) -> None:
    """Whatever the result code says."""
    bench.world.turn(late_ms=30_000)
    with pytest.raises(SleepFailed, match=r"says it is asleep, but \d+ MiB came back of \d+ MiB"):
        await bench.driver_with(limits=HASTY).sleep(bench.target(await bench.holder(mib=256)))


async def test_memory_that_comes_back_late_is_waited_for(bench: Bench) -> None:
    """A sleep has ended when NVML shows it."""
    bench.world.turn(late_ms=300)
    empty = await bench.free_mib()
    await bench.driver.sleep(bench.target(await bench.holder()))
    assert await bench.free_mib() == empty


async def test_a_process_killed_in_its_checkpoint_fails_the_sleep(bench: Bench) -> None:
    """And the driver is well for the next one."""
    bench.world.turn(checkpoint_mibps=128)
    holder = await bench.holder()
    async with asyncio.TaskGroup() as tasks:
        sleep = tasks.create_task(failure(bench.driver.sleep(bench.target(holder))))
        await eventually(lambda: under_way(bench, holder))
        await holder.kill()
    assert isinstance(sleep.result(), SleepFailed)
    await bench.driver.sleep(bench.target(await bench.holder(), model="llama"))


@pytest.mark.parametrize("fault", ["crash", "hang"])
async def test_a_checkpoint_call_that_gets_lost_is_seen_to(bench: Bench, fault: str) -> None:
    """One that crashed had begun, so it is done; one that hung had not, so it is made again."""
    driver = bench.driver_with(limits=Limits(checkpoint_s=1))
    holder = await bench.holder()
    target = bench.target(holder)
    bench.world.plan("checkpoint", fault)
    await driver.sleep(target)
    await driver.wake(target)
    assert await holder.is_whole()


async def test_a_driver_that_hangs_for_good_fails_the_sleep(bench: Bench) -> None:
    """Within the deadlines, and the state is unknown."""
    driver = bench.driver_with(limits=Limits(checkpoint_s=0.3, lowest_rate=1e12))
    holder = await bench.holder()
    bench.world.plan("checkpoint", "hang")
    bench.world.plan("state", 0, "hang")
    async with asyncio.timeout(30):
        with pytest.raises(SleepFailed, match="doesn't tell"):
            await driver.sleep(bench.target(holder))


# How a wake is refused, and how it ends badly.


async def test_never_restores_without_room(bench: Bench) -> None:
    """It would be the end of the process; so it sleeps on until there is room."""
    driver = bench.driver_with(limits=HASTY)
    holder = await bench.holder(mib=256)
    target = bench.target(holder)
    await driver.sleep(target)
    glutton = await bench.holder(mib=0)
    await glutton.do("fill", keep_mib=300)

    with pytest.raises(WakeRefused, match=r"gpu0 has \d+ MiB free, and it needs 832 MiB"):
        await driver.wake(target)

    assert "restore" not in [op for op, _ in bench.world.calls(holder.pid)]
    await glutton.kill()
    await driver.wake(target)
    assert await holder.is_whole()


async def test_waits_for_room_that_comes_late(bench: Bench) -> None:
    """Memory of a process that has ended shows up a while later."""
    bench.world.turn(late_ms=500)
    holder = await bench.holder(mib=256)
    target = bench.target(holder)
    await bench.driver.sleep(target)
    glutton = await bench.holder(mib=0)
    await glutton.do("fill", keep_mib=300)
    await glutton.kill()

    await bench.driver.wake(target)

    assert [result for op, result in bench.world.calls(holder.pid) if op == "restore"] == [0]


async def test_of_two_that_want_the_last_room_one_gets_it(bench: Bench) -> None:
    """They take turns, so the second sees what the first took."""
    driver = bench.driver_with(limits=Limits(settle_s=0.5, gpu_margin_bytes=0))
    holders = [await bench.holder(mib=512), await bench.holder(mib=512)]
    targets = [bench.target(holder, model=f"m{n}") for n, holder in enumerate(holders)]
    for target in targets:
        await driver.sleep(target)
    glutton = await bench.holder(mib=0)
    await glutton.do("fill", keep_mib=800)
    bench.world.turn(restore_mibps=2000)

    outcomes = await asyncio.gather(*(failure(driver.wake(target)) for target in targets))

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "WakeRefused"]
    await glutton.kill()
    for target, outcome in zip(targets, outcomes, strict=True):
        if outcome:
            await driver.wake(target)
    assert all([await holder.is_whole() for holder in holders])


async def test_the_margin_is_waived_where_it_never_was(make_world: Callable[..., World]) -> None:
    """A model that fills its card fits there again."""
    gauge = await Gauge.start((world := make_world(card(0, mib=1024))).environ())
    bench = Bench(world, gauge)
    holder = await bench.holder(mib=512)
    await bench.driver.sleep(bench.target(holder))
    await bench.driver.wake(bench.target(holder))
    assert await holder.is_whole()
    await bench.close()
    await gauge.aclose()


async def test_a_process_that_died_asleep_fails_its_wake(bench: Bench) -> None:
    """At once."""
    holder = await bench.holder()
    target = bench.target(holder)
    await bench.driver.sleep(target)
    await holder.kill()
    with pytest.raises(WakeFailed, match="died while it was asleep"):
        await bench.driver.wake(target)


async def test_nobody_is_woken_who_was_not_put_to_sleep(bench: Bench) -> None:
    """Neither a model that is awake, nor one of another generation."""
    holder = await bench.holder()
    with pytest.raises(WakeFailed, match="nothing is known"):
        await bench.driver.wake(bench.target(holder))
    await bench.driver.sleep(bench.target(holder, generation=1))
    with pytest.raises(WakeFailed, match="nothing is known"):
        await bench.driver.wake(bench.target(holder, generation=2))


async def test_a_failed_restore_is_final(bench: Bench) -> None:
    """The process must be ended; a second wake knows nothing of it."""
    target = bench.target(await bench.holder())
    await bench.driver.sleep(target)
    bench.world.plan("restore", 304)
    with pytest.raises(WakeFailed, match="OPERATING_SYSTEM") as caught:
        await bench.driver.wake(target)
    assert not caught.value.intact
    with pytest.raises(WakeFailed, match="nothing is known"):
        await bench.driver.wake(target)


async def test_a_restore_whose_answer_is_lost_is_seen_to(bench: Bench) -> None:
    """It goes on without its caller, so the process is unlocked and well."""
    holder = await bench.holder()
    target = bench.target(holder)
    await bench.driver.sleep(target)
    bench.world.plan("restore", "crash")
    await bench.driver.wake(target)
    assert await holder.is_whole()


async def test_an_unlock_is_tried_three_times(bench: Bench) -> None:
    """Two faults are borne."""
    holder = await bench.holder()
    target = bench.target(holder)
    await bench.driver.sleep(target)
    bench.world.plan("unlock", 304, "crash")
    await bench.driver.wake(target)
    assert await holder.is_whole()


async def test_a_process_stopped_asleep_is_continued(bench: Bench) -> None:
    """The restore would hang else."""
    holder = await bench.holder()
    target = bench.target(holder)
    await bench.driver.sleep(target)
    await stop(holder)
    await bench.driver.wake(target)
    assert await holder.is_whole()


async def test_what_sleeps_sleeps_on_when_the_driver_is_closed(bench: Bench) -> None:
    """Its process is ended by those who started it."""
    holder = await bench.holder()
    await bench.driver.sleep(bench.target(holder))
    await bench.driver.aclose()
    record = bench.world.record(holder.pid)
    assert record is not None
    assert record.state == 2
    os.kill(holder.pid, 0)


async def stop(holder: Holder) -> None:
    """Stop it by a signal, and wait until it is."""

    def stopped() -> bool:
        seen = look(holder.pid)
        return seen is not None and seen.stopped

    holder.process.send_signal(signal.SIGSTOP)
    await eventually(stopped)


async def failure(attempt: object) -> Exception | None:
    """Return what `attempt` raises, or None."""
    assert asyncio.iscoroutine(attempt)
    try:
        await attempt
    except (SleepFailed, WakeFailed) as error:
        return error
    return None


def under_way(bench: Bench, holder: Holder) -> bool:
    """Whether the checkpoint has begun."""
    record = bench.world.record(holder.pid)
    return record is not None and (record.state, record.next_state) == (1, 2)
