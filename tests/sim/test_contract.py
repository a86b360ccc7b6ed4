"""What NVIDIA's driver was found to do, one test a finding.

The tests with a `rig` hold for the simulated driver and, with `-m gpu` on a machine that has one,
for a real one. Those with a `world` are about what can't be arranged on a real machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from llmsnap.sleep.cuda_api import ProcessState, Result
from llmsnap.sleep.cuda_client import CallLost, Worker
from llmsnap.sleep.cuda_wire import Operation
from tests.gpu.holder import Holder
from tests.helpers.waiting import eventually
from tests.sim.gauge import with_repository
from tests.sim.rig import Rig, has_gpu
from tests.sim.world import MIB, World, card

REAL = [pytest.param("real", marks=pytest.mark.gpu)] if has_gpu() else []


@pytest.fixture(params=["simulated", *REAL])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """A GPU and callers, simulated or real."""
    if request.param == "real":
        rig = await Rig.real()
    else:
        rig = await Rig.simulated(request.getfixturevalue("world"))
    yield rig
    await rig.aclose()


@pytest.fixture
async def sim(world: World) -> AsyncIterator[Rig]:
    """The simulated GPU, for what can't be arranged on a real one."""
    rig = await Rig.simulated(world)
    yield rig
    await rig.aclose()


# The four calls and their order.


async def test_four_calls_make_a_cycle(rig: Rig) -> None:
    """Lock, checkpoint, restore, unlock: each leads to its state, and no byte is lost."""
    holder = await rig.holder(mib=96)
    assert await rig.state(holder.pid) == ProcessState.RUNNING
    cycle: list[tuple[Operation, ProcessState]] = [
        ("lock", ProcessState.LOCKED),
        ("checkpoint", ProcessState.CHECKPOINTED),
        ("restore", ProcessState.LOCKED),
        ("unlock", ProcessState.RUNNING),
    ]
    for op, state in cycle:
        assert (await rig.call(op, holder.pid)).result == Result.SUCCESS
        assert await rig.state(holder.pid) == state
    assert await holder.is_whole()


async def test_the_wrong_order_is_refused_and_harmless(rig: Rig) -> None:
    """A call that doesn't fit the state answers 401 and changes nothing."""
    holder = await rig.holder()
    pid = holder.pid
    wrong = [Result.ILLEGAL_STATE] * 3
    assert await rig.calls(pid, "checkpoint", "restore", "unlock") == wrong
    assert await rig.calls(pid, "lock", "lock", "restore") == [Result.SUCCESS, *wrong[:2]]
    assert await rig.calls(pid, "checkpoint", "lock", "checkpoint") == [Result.SUCCESS, *wrong[:2]]
    assert await rig.calls(pid, "unlock", "restore", "unlock") == [wrong[0], Result.SUCCESS, 0]
    assert await holder.is_whole()


async def test_a_checkpoint_gives_back_all_memory(rig: Rig) -> None:
    """NVML shows it free; the process is listed while locked, and not while checkpointed."""
    before = (await rig.gpu()).free_bytes
    holder = await rig.holder(mib=256)
    await rig.call("lock", holder.pid)
    assert await rig.lists(holder.pid)
    locked = (await rig.gpu()).free_bytes

    await rig.call("checkpoint", holder.pid)

    assert not await rig.lists(holder.pid)
    asleep = (await rig.gpu()).free_bytes
    assert asleep - locked >= 256 * MIB
    assert abs(asleep - before) < 32 * MIB


async def test_the_caller_takes_no_memory(rig: Rig) -> None:
    """A process that has only called cuInit isn't listed and holds nothing."""
    before = (await rig.gpu()).free_bytes
    hello = await rig.caller.hello()
    assert (hello.fault, hello.init, hello.missing) == ("", 0, ())
    assert rig.caller.pid is not None
    assert not await rig.lists(rig.caller.pid)
    assert before - (await rig.gpu()).free_bytes < 16 * MIB


# Processes that it can't be done with.


async def test_a_pid_that_is_not_there(rig: Rig) -> None:
    """Answers 304."""
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    assert await rig.calls(process.pid, "state", "lock") == [Result.OPERATING_SYSTEM] * 2


async def test_a_process_without_cuda(rig: Rig) -> None:
    """Answers 3."""
    process = await asyncio.create_subprocess_exec("sleep", "60")
    assert await rig.calls(process.pid, "state", "lock") == [Result.NOT_INITIALIZED] * 2
    process.kill()
    await process.wait()


async def test_a_zombie(rig: Rig) -> None:
    """Answers 3."""
    process = _killed()
    await eventually(lambda: _letter(process.pid) == "Z")
    assert await rig.calls(process.pid, "state") == [Result.NOT_INITIALIZED]
    process.wait()


async def test_managed_memory_rules_checkpoints_out(rig: Rig) -> None:
    """Answers 801; what becomes of the process differs between drivers."""
    holder = await rig.holder()
    assert "error" not in await holder.do("manage", mib=16)
    results = await rig.calls(holder.pid, "lock", "checkpoint")
    assert results == [Result.SUCCESS, Result.NOT_SUPPORTED]


# Locks.


async def test_a_lock_waits_for_work_in_flight(rig: Rig) -> None:
    """It returns when the GPU has done what it was given."""
    holder = await rig.holder()
    await holder.do("work", seconds=1)
    reply = await rig.call("lock", holder.pid)
    assert reply.result == Result.SUCCESS
    assert reply.seconds > 0.05


async def test_a_lock_gives_up_at_its_time_limit(rig: Rig) -> None:
    """Answers 600, and the process runs on as if nothing had been."""
    holder = await rig.holder()
    await holder.do("work", seconds=5)
    assert (await rig.call("lock", holder.pid, timeout_ms=20)).result == Result.NOT_READY
    assert await rig.state(holder.pid) == ProcessState.RUNNING
    assert await holder.is_whole()


async def test_a_stopped_process_hangs_calls_until_it_is_continued(rig: Rig) -> None:
    """Neither a lock with a time limit nor a state query answers; SIGCONT heals it."""
    holder = await rig.holder()
    holder.process.send_signal(signal.SIGSTOP)
    await eventually(lambda: _letter(holder.pid) == "T")
    assert await rig.hangs("lock", holder.pid, timeout_ms=20)
    assert await rig.hangs("state", holder.pid)
    holder.process.send_signal(signal.SIGCONT)
    results = await rig.calls(holder.pid, "lock", "checkpoint", "restore", "unlock")
    assert results[1:] == [0, 0, 0]  # the first lock may have been carried out meanwhile
    assert await holder.is_whole()


# Operations under way.


async def test_a_state_query_blocks_behind_an_operation(rig: Rig) -> None:
    """It answers when the operation is done, with the state that this led to."""
    holder = await rig.slow_holder()
    await rig.call("lock", holder.pid)
    await rig.witness.hello()
    async with asyncio.TaskGroup() as tasks:
        checkpoint = tasks.create_task(rig.call("checkpoint", holder.pid))
        await _is_under_way(rig, holder)
        state = await rig.state(holder.pid)
    assert checkpoint.result().seconds > 0.4
    assert state == ProcessState.CHECKPOINTED


Operations = tuple[Operation, ...]


@pytest.mark.parametrize(
    ("before", "op", "leads_to", "after"),
    [
        (("lock",), "checkpoint", ProcessState.CHECKPOINTED, ("restore", "unlock")),
        (("lock", "checkpoint"), "restore", ProcessState.LOCKED, ("unlock",)),
    ],
    ids=["checkpoint", "restore"],
)
async def test_an_operation_goes_on_without_its_caller(
    rig: Rig, before: Operations, op: Operation, leads_to: ProcessState, after: Operations
) -> None:
    """The caller is killed half-way; after a restore the process waits for its unlock."""
    holder = await rig.slow_holder()
    await rig.calls(holder.pid, *before)

    with pytest.raises(CallLost):  # killed at its deadline
        await rig.caller.ask(op, holder.pid, deadline_s=0.2)

    assert await rig.state(holder.pid) == leads_to
    assert not any(await rig.calls(holder.pid, *after))
    assert await holder.is_whole()


async def test_a_process_that_dies_in_its_checkpoint(rig: Rig) -> None:
    """The call answers 304, and the GPU's memory comes back."""
    before = (await rig.gpu()).free_bytes
    holder = await rig.slow_holder()
    await rig.call("lock", holder.pid)
    async with asyncio.TaskGroup() as tasks:
        checkpoint = tasks.create_task(rig.call("checkpoint", holder.pid))
        await _is_under_way(rig, holder)
        await holder.kill()
    assert checkpoint.result().result == Result.OPERATING_SYSTEM

    async def is_free() -> bool:
        return (await rig.gpu()).free_bytes > before - 32 * MIB

    await eventually(is_free)


# What becomes of checkpointed processes.


async def test_a_restore_out_of_memory_poisons_the_process_for_ever(rig: Rig) -> None:
    """It answers 2, then 304 even with memory free again; only its end gives back what it took."""
    holder = await rig.holder(mib=1024)
    await rig.calls(holder.pid, "lock", "checkpoint")
    empty = (await rig.gpu()).free_bytes
    glutton = await rig.holder(mib=0)
    await glutton.do("fill", keep_mib=512)

    assert await rig.calls(holder.pid, "restore") == [Result.OUT_OF_MEMORY]

    await glutton.kill()
    assert await rig.calls(holder.pid, "restore", "restore") == [Result.OPERATING_SYSTEM] * 2
    assert empty - (await rig.gpu()).free_bytes > 64 * MIB
    await holder.kill()

    async def is_free() -> bool:
        return (await rig.gpu()).free_bytes > empty - 32 * MIB

    await eventually(is_free)


async def test_waiting_for_the_gpu_first_crashes_a_checkpointed_process(rig: Rig) -> None:
    """The trap: llama-server's first call for a new request is often exactly that."""
    holder = await rig.holder()
    await rig.calls(holder.pid, "lock", "checkpoint")
    holder.tell("synchronise")
    async with asyncio.timeout(30):
        assert await holder.process.wait() == -signal.SIGSEGV


async def test_waiting_for_the_gpu_returns_at_once_in_a_locked_process(rig: Rig) -> None:
    """It isn't the lock that crashes it."""
    holder = await rig.holder()
    await rig.call("lock", holder.pid)
    assert "error" not in await holder.do("synchronise", within_s=5)


async def test_other_calls_of_a_checkpointed_process_wait_for_its_unlock(rig: Rig) -> None:
    """Copies hang, and go on as if nothing had been."""
    holder = await rig.holder()
    await rig.calls(holder.pid, "lock", "checkpoint")
    with pytest.raises(TimeoutError):
        await holder.do("check", within_s=0.3)
    await rig.calls(holder.pid, "restore", "unlock")
    async with asyncio.timeout(30):
        assert (await holder.answer())["whole"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
async def test_a_checkpointed_process_dies_of_signals_without_a_handler(
    rig: Rig, signum: signal.Signals
) -> None:
    """It need not be restored first."""
    holder = await rig.holder()
    await rig.calls(holder.pid, "lock", "checkpoint")
    holder.process.send_signal(signum)
    async with asyncio.timeout(30):
        assert await holder.process.wait() == -signum


# What can't be arranged on a real machine.


async def test_managed_memory_can_break_the_process(sim: Rig, world: World) -> None:
    """On 580 it goes on after the refusal, on 595 its context is dead."""
    for breaks in (0, 1):
        world.turn(managed_breaks=breaks)
        holder = await sim.holder()
        await holder.do("manage", mib=16)
        await sim.calls(holder.pid, "lock", "checkpoint", "unlock")
        assert ("error" in await holder.do("check")) == bool(breaks)


async def test_a_split_card_refuses_with_out_of_memory(sim: Rig, world: World) -> None:
    """MIG isn't supported, and the code misleads."""
    world.turn(mig=1)
    holder = await sim.holder()
    assert await sim.calls(holder.pid, "lock", "checkpoint") == [0, Result.OUT_OF_MEMORY]


async def test_memory_can_come_back_late(sim: Rig, world: World) -> None:
    """After a checkpoint and after an end, NVML counts it a while longer."""
    world.turn(late_ms=300)
    holder = await sim.holder(mib=256)
    await sim.calls(holder.pid, "lock", "checkpoint")
    taken = (await sim.gpu()).used_bytes
    assert taken > 256 * MIB

    async def has_come_back() -> bool:
        return (await sim.gpu()).used_bytes < 512 * MIB

    await eventually(has_come_back)
    await sim.calls(holder.pid, "restore", "unlock")
    await holder.kill()
    assert (await sim.gpu()).used_bytes == taken
    await eventually(has_come_back)


async def test_u122_a_cgroup_too_small_for_the_copy_kills_the_process(
    sim: Rig, world: World
) -> None:
    """Half-way, and the caller is told 304."""
    world.turn(host_room_mib=64)
    holder = await sim.holder(mib=128)
    assert await sim.calls(holder.pid, "lock", "checkpoint") == [0, Result.OPERATING_SYSTEM]
    assert await holder.process.wait() == -signal.SIGKILL


async def test_all_gpus_of_a_process_move_in_one_call(make_world: Callable[..., World]) -> None:
    """Its memory leaves both cards, and fits back only if it fits both."""
    rig = await Rig.simulated(make_world(card(0), card(1)))
    holder = await rig.holder(mib=128)
    await holder.do("spread", mib=256)
    full = (await rig.gauge.read()).devices
    await rig.calls(holder.pid, "lock", "checkpoint")
    empty = (await rig.gauge.read()).devices
    moved = [
        after.free_bytes - before.free_bytes for before, after in zip(full, empty, strict=True)
    ]
    assert moved == [(128 + 64) * MIB, (256 + 64) * MIB]
    assert await rig.calls(holder.pid, "restore", "unlock") == [0, 0]
    assert await holder.is_whole()
    await rig.aclose()


async def test_a_restore_needs_cuinit_or_persistence_mode(sim: Rig, world: World) -> None:
    """A caller that hasn't called cuInit can restore only with persistence mode."""
    holder = await sim.holder()
    await sim.calls(holder.pid, "lock", "checkpoint")
    code = (
        "import sys; from llmsnap.sleep.cuda_api import *; "
        "print(CheckpointApi(load()).restore(int(sys.argv[1])))"
    )

    def restore() -> int:
        command = [sys.executable, "-P", "-c", code, str(holder.pid)]
        return int(subprocess.check_output(command, env=with_repository(world.environ())))

    world.turn(persistence=0)
    assert restore() == Result.NOT_INITIALIZED
    world.turn(persistence=1)
    assert restore() == Result.SUCCESS


async def test_a_driver_before_570_lacks_the_calls(
    make_world: Callable[..., World], old_libraries: Path
) -> None:
    """They are missing from the library, and the version says why."""
    world = make_world(libraries=old_libraries)
    world.turn(cuda=12040)
    worker = Worker(world.environ(), hello_timeout_s=30)
    hello = await worker.hello()
    await worker.aclose()
    assert hello.version == 12040
    assert "cuCheckpointProcessRestore" in hello.missing


@pytest.mark.skipif(has_gpu(), reason="there is a driver here")
async def test_without_a_driver_there_is_no_library() -> None:
    """The caller says so and ends."""
    worker = Worker(os.environ, hello_timeout_s=30)
    hello = await worker.hello()
    await worker.aclose()
    assert "libcuda.so.1" in hello.fault


@pytest.mark.parametrize(
    ("visible", "bus"),
    [
        (None, 0),
        ("1", 1),
        (f"{card(1).uuid},{card(0).uuid}", 1),
        ("GPU-00000001", 1),
        ("7,1", None),
    ],
    ids=["unset", "index", "uuids", "prefix", "invalid-hides-the-rest"],
)
async def test_a_process_sees_the_cards_that_its_environment_names(
    make_world: Callable[..., World], visible: str | None, bus: int | None
) -> None:
    """By index or by UUID; an entry that isn't valid hides what follows it."""
    world = make_world(card(0), card(1))
    environ = world.environ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    rig = await Rig.simulated(world)
    if bus is None:
        with pytest.raises((AssertionError, EOFError)):
            await Holder.start(environ, mib=32)
    else:
        holder = await Holder.start(environ, mib=32)
        devices = (await rig.gauge.read()).devices
        assert [holder.pid in (gpu.processes or {}) for gpu in devices] == [bus == 0, bus == 1]
        await holder.kill()
    await rig.aclose()


def _killed() -> subprocess.Popen[bytes]:
    """Return a process that nobody has waited for yet."""
    process = subprocess.Popen(["sleep", "60"])
    process.kill()
    return process


def _letter(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat[stat.rindex(")") + 2]


async def _is_under_way(rig: Rig, holder: Holder) -> None:
    """Wait until the operation has surely begun."""
    if rig.world is None:
        await asyncio.sleep(0.2)
        return

    def begun() -> bool:
        assert rig.world is not None
        record = rig.world.record(holder.pid)
        return record is not None and record.next_state >= 0

    await eventually(begun)
