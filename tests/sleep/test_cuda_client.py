"""The processes that make driver calls: what hangs or crashes is replaced, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

from llmsnap.sleep.cuda_api import ProcessState, Result
from llmsnap.sleep.cuda_client import CallLost, CudaClient, Worker, process_environment
from tests.gpu.holder import Holder
from tests.helpers.processes import lives
from tests.helpers.waiting import eventually
from tests.sim.gauge import with_repository
from tests.sim.world import World


@pytest.fixture
async def client(world: World) -> AsyncIterator[CudaClient]:
    """Both processes, as the driver has them."""
    client = CudaClient(environ=world.environ(), hello_timeout_s=30)
    yield client
    await client.aclose()


@pytest.fixture
async def worker(world: World) -> AsyncIterator[Worker]:
    """One of them."""
    worker = Worker(world.environ(), hello_timeout_s=30)
    yield worker
    await worker.aclose()


@pytest.fixture
async def holder(world: World) -> AsyncIterator[Holder]:
    """Something to make calls on."""
    holder = await Holder.start(world.environ(), mib=64)
    yield holder
    await holder.kill()


async def test_makes_each_call(client: CudaClient, holder: Holder) -> None:
    """The four that change something, and the question for the state."""
    pid = holder.pid
    assert (await client.hello()).version == 13000
    replies = [
        await client.lock(pid, timeout_s=1, deadline_s=30),
        await client.checkpoint(pid, deadline_s=30),
        await client.restore(pid, deadline_s=30),
        await client.unlock(pid, deadline_s=30),
    ]
    assert [reply.name for reply in replies] == ["CUDA_SUCCESS"] * 4
    assert (await client.state(pid, deadline_s=30)).state == ProcessState.RUNNING
    assert (await client.unlock(pid, deadline_s=30)).name == "CUDA_ERROR_ILLEGAL_STATE"


async def test_the_time_limit_of_a_lock_is_never_without_end(
    client: CudaClient, holder: Holder
) -> None:
    """0 would mean that to the driver."""
    await holder.do("work", seconds=5)
    reply = await client.lock(holder.pid, timeout_s=0, deadline_s=30)
    assert reply.result == Result.NOT_READY


async def test_the_process_lives_long(worker: Worker, holder: Holder) -> None:
    """A second call goes through the same one."""
    await worker.ask("state", holder.pid, deadline_s=30)
    pid = worker.pid
    await worker.ask("state", holder.pid, deadline_s=30)
    assert worker.pid == pid


async def test_a_call_that_hangs_is_given_up_and_its_process_replaced(
    world: World, worker: Worker, holder: Holder
) -> None:
    """The next call is answered by another process."""
    await worker.hello()
    hung = worker.pid
    assert hung is not None
    world.plan("lock", "hang")

    with pytest.raises(CallLost, match="lock call took over 1 s"):
        await worker.ask("lock", holder.pid, deadline_s=1)

    await eventually(lambda: not lives(hung))
    assert (await worker.ask("lock", holder.pid, deadline_s=30)).result == Result.SUCCESS
    assert worker.pid != hung


async def test_a_call_that_crashes_costs_only_its_process(
    world: World, worker: Worker, holder: Holder
) -> None:
    """What the driver had begun is done all the same."""
    await worker.ask("lock", holder.pid, deadline_s=30)
    world.plan("checkpoint", "crash")
    with pytest.raises(CallLost, match=r"checkpoint call ended its process \(exit code -11\)"):
        await worker.ask("checkpoint", holder.pid, deadline_s=30)
    reply = await worker.ask("state", holder.pid, deadline_s=30)
    assert reply.state == ProcessState.CHECKPOINTED


async def test_a_process_killed_between_calls_is_replaced(worker: Worker, holder: Holder) -> None:
    """One call may find out; the one after it is served."""
    await worker.hello()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    try:
        await worker.ask("state", holder.pid, deadline_s=30)
    except CallLost:
        reply = await worker.ask("state", holder.pid, deadline_s=30)
        assert reply.result == Result.SUCCESS


async def test_a_question_for_the_state_is_asked_again_when_its_process_died(
    world: World, client: CudaClient, holder: Holder
) -> None:
    """Once; one that hangs isn't."""
    world.plan("state", "crash", 0)
    assert (await client.state(holder.pid, deadline_s=30)).state == ProcessState.RUNNING
    world.plan("state", "hang")
    with pytest.raises(CallLost, match="took over"):
        await client.state(holder.pid, deadline_s=0.2)


async def test_a_cancelled_call_does_not_answer_the_next_one(
    world: World, worker: Worker, holder: Holder
) -> None:
    """Answers are never mixed up."""
    world.turn(checkpoint_mibps=256)
    await worker.ask("lock", holder.pid, deadline_s=30)
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(worker.ask("checkpoint", holder.pid, deadline_s=30))
        await eventually(lambda: is_under_way(world, holder.pid))
        call.cancel()
    reply = await worker.ask("state", holder.pid, deadline_s=30)
    assert reply.state == ProcessState.CHECKPOINTED


async def test_calls_go_one_after_the_other(
    world: World, client: CudaClient, holder: Holder
) -> None:
    """The deadline of one that waits for its turn has not begun."""
    world.turn(checkpoint_mibps=64)  # 2 s
    await client.lock(holder.pid, timeout_s=1, deadline_s=30)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(client.checkpoint(holder.pid, deadline_s=30))
        await asyncio.sleep(0)
        second = tasks.create_task(client.unlock(holder.pid, deadline_s=1.5))
    assert first.result().result == Result.SUCCESS
    assert second.result().result == Result.ILLEGAL_STATE


async def test_other_states_can_be_asked_for_during_an_operation(
    world: World, client: CudaClient, holder: Holder
) -> None:
    """They have a process of their own."""
    world.turn(checkpoint_mibps=64)  # 2 s
    other = await Holder.start(world.environ(), mib=32)
    await client.lock(holder.pid, timeout_s=1, deadline_s=30)
    await client.state(other.pid, deadline_s=30)
    async with asyncio.TaskGroup() as tasks:
        checkpoint = tasks.create_task(client.checkpoint(holder.pid, deadline_s=30))
        await asyncio.sleep(0)
        assert (await client.state(other.pid, deadline_s=30)).state == ProcessState.RUNNING
        assert not checkpoint.done()
    await other.kill()


async def test_a_driver_that_does_not_come_up_is_said_to(world: World) -> None:
    """Its process is killed, and the caller knows why."""
    world.turn(init_ms=60_000)
    worker = Worker(world.environ(), hello_timeout_s=0.3)
    with pytest.raises(CallLost, match="come up within 0"):
        await worker.hello()
    await worker.aclose()


async def test_codes_that_the_driver_has_no_name_for_have_ours(
    world: World, worker: Worker
) -> None:
    """The simulated one doesn't know 803."""
    world.turn(cu_init=803)
    assert (await worker.hello()).init_name == "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"


async def test_closing_ends_both_processes(world: World) -> None:
    """One in the middle of a hung call too; closing twice is fine."""
    holder = await Holder.start(world.environ(), mib=32)
    idle, hung = (Worker(world.environ(), hello_timeout_s=30) for _ in range(2))
    await idle.hello()
    await hung.hello()
    pids = [idle.pid, hung.pid]
    world.plan("lock", "hang")

    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(_lost(hung, holder.pid))
        await eventually(lambda: (world.folder / "faults/lock").read_text() == "")
        for worker in (hung, idle, idle):
            await worker.aclose()

    assert call.result()
    assert not any(lives(pid) for pid in pids if pid)
    await holder.kill()
    with pytest.raises(CallLost, match="about to end"):
        await idle.ask("state", holder.pid, deadline_s=30)


async def test_signals_to_the_group_are_for_the_proxy(worker: Worker, holder: Holder) -> None:
    """Ctrl-C and a service's stop reach every process; these go when the proxy does."""
    await worker.hello()
    assert worker.pid is not None
    for signum in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker.pid, signum)
    assert (await worker.ask("state", holder.pid, deadline_s=30)).result == Result.SUCCESS


def test_processes_end_with_a_killed_proxy(world: World) -> None:
    """Also in the middle of a call that hangs, where stdin isn't looked at."""
    world.plan("state", "hang")
    code = (
        "import asyncio, os; from llmsnap.sleep.cuda_client import Worker\n"
        "async def main():\n"
        "    worker = Worker(os.environ, hello_timeout_s=30)\n"
        "    await worker.hello(); print(worker.pid, flush=True)\n"
        "    await worker.ask('state', os.getpid(), deadline_s=60)\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-P", "-c", code]
    environ = with_repository(world.environ())
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        pid = int(proxy.stdout.readline())
        _until(lambda: (world.folder / "faults/state").read_text() == "")
        assert lives(pid)
        proxy.kill()
    _until(lambda: not lives(pid))


def test_a_process_sees_every_gpu_and_finds_this_package() -> None:
    """What the proxy itself is shown doesn't count."""
    environ = process_environment({"CUDA_VISIBLE_DEVICES": "1", "PYTHONPATH": "/x", "A": "b"})
    assert "CUDA_VISIBLE_DEVICES" not in environ
    assert environ["A"] == "b"
    assert environ["PYTHONPATH"].endswith(":/x")


def is_under_way(world: World, pid: int) -> bool:
    """Whether the driver has begun to change `pid`."""
    record = world.record(pid)
    return record is not None and record.next_state >= 0


async def _lost(worker: Worker, pid: int) -> bool:
    try:
        await worker.ask("lock", pid, deadline_s=30)
    except CallLost:
        return True
    return False


def _until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
