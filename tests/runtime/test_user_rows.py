"""What broke for people elsewhere, with real children, the real scheduler and the supervisor."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import psutil
import pytest

from llmsnap.core.lifecycle import State
from llmsnap.errors import LlmsnapError, ModelUnloaded, ShuttingDown, StartFailed, UpstreamLost
from llmsnap.runtime.supervisor import Supervisor
from tests.helpers.waiting import eventually
from tests.runtime.rig import OneAtATime, Rig, children, plan, serve_argv


async def ask(supervisor: Supervisor, model: str) -> int:
    """Send one request to `model` and return the pid that answered; it must be a 200."""
    async with supervisor.lease(model) as lease:
        upstream = lease.upstream
        url = f"http://{upstream.host}:{upstream.port}/"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            assert answer.status == 200
        assert upstream.pid is not None
        return upstream.pid


def starts(rig: Rig, model: str) -> int:
    """How often a process of `model` came up."""
    return rig.logs.model(model).history().count(b"pid ")


async def test_u01_a_request_during_a_stop_gets_a_fresh_process(rig: Rig) -> None:
    """It waits for the stop, then for the start; it never hangs."""
    supervisor = rig.supervise(plan(options="--ignore-term", grace_s=1))
    first = await ask(supervisor, "a")
    unloading = asyncio.ensure_future(supervisor.unload("a"))
    await rig.becomes("a", State.STOPPING)
    async with asyncio.timeout(30):
        second = await ask(supervisor, "a")
    await unloading
    assert second != first
    assert not psutil.pid_exists(first)


async def test_u03_no_request_meets_a_dying_process(rig: Rig) -> None:
    """Admission and the count of requests in flight are one step: 30 rounds of a beside b."""
    supervisor = rig.supervise(plan("a"), plan("b"), constraints=OneAtATime())
    for _ in range(15):
        await asyncio.gather(ask(supervisor, "a"), ask(supervisor, "b"), ask(supervisor, "a"))
    assert starts(rig, "a") > 1


async def test_u05_a_new_request_after_a_cancelled_load_is_served(rig: Rig) -> None:
    """A's client leaves while A loads, B takes its place, and A is wanted again at once."""
    supervisor = rig.supervise(plan("a", "--ready 0.4"), plan("b"), constraints=OneAtATime())
    leaving = asyncio.ensure_future(ask(supervisor, "a"))
    await rig.becomes("a", State.STARTING)
    leaving.cancel()
    other = asyncio.ensure_future(ask(supervisor, "b"))
    await eventually(lambda: starts(rig, "b") == 1)
    async with asyncio.timeout(30):
        assert await ask(supervisor, "a") != await other


async def test_u09_p02_ten_first_requests_start_one_process(rig: Rig) -> None:
    """All are served by it."""
    supervisor = rig.supervise(plan(options="--ready 0.3"))
    pids = await asyncio.gather(*(ask(supervisor, "a") for _ in range(10)))
    assert len(set(pids)) == 1
    assert starts(rig, "a") == 1


async def test_u15_a_wedged_engine_can_be_unloaded(rig: Rig) -> None:
    """Its request ends with an error, its process by SIGKILL, and the call returns."""
    supervisor = rig.supervise(plan(options="--ignore-term", grace_s=0.2))
    told: list[LlmsnapError] = []
    async with supervisor.lease("a") as lease:
        lease.on_abort = told.append
        pid = lease.upstream.pid
        async with asyncio.timeout(30):
            await supervisor.unload("a", 0)
        assert isinstance(told[0], ModelUnloaded)
    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert supervisor.view("a").state is State.STOPPED


async def test_u26_p32_a_command_that_exits_at_once(rig: Rig) -> None:
    """The error comes at once, with code and last lines; the next request tries again."""
    supervisor = rig.supervise(plan(options="--print no-such-flag --exit 7", start_timeout_s=900))
    for attempt in (1, 2):
        async with asyncio.timeout(30):
            with pytest.raises(StartFailed, match="exit code 7") as caught:
                await ask(supervisor, "a")
        assert "no-such-flag" in str(caught.value)
        assert caught.value.retry_after_s is not None
        assert starts(rig, "a") == attempt
    assert supervisor.view("a").state is State.FAILED


async def test_u27_a_start_that_timed_out_is_tried_again(rig: Rig, tmp_path: Path) -> None:
    """One timeout doesn't make a model fail for ever."""
    good, works = plan(), tmp_path / "works"
    script = f'[ -e {works} ] && exec "$@"; exec sleep 60'
    argv = ("/bin/sh", "-c", script, "sh", *good.argv)
    hangs = plan(argv=argv, port=good.endpoint.port, start_timeout_s=0.5)
    supervisor = rig.supervise(hangs)
    with pytest.raises(StartFailed, match=r"not ready after 0\.5 s"):
        await ask(supervisor, "a")
    works.touch()
    # With all the time that a slow machine needs.
    rig.runners["a"].adopt(replace(hangs, start_timeout_s=120.0), None)
    await ask(supervisor, "a")


async def test_u30_nobody_is_left_waiting_for_a_service_that_exits(rig: Rig) -> None:
    """All who waited for it are told at once."""
    supervisor = rig.supervise(plan(argv=("sh", "-c", "sleep 0.2; exit 1"), start_timeout_s=900))
    async with asyncio.timeout(30):
        outcomes = await asyncio.gather(
            *(ask(supervisor, "a") for _ in range(10)), return_exceptions=True
        )
    assert all(isinstance(outcome, StartFailed) for outcome in outcomes)
    assert supervisor.view("a").waiting == 0


async def test_u31_a_process_that_was_killed_counts_as_gone(rig: Rig) -> None:
    """The next model takes its place without waiting for it."""
    supervisor = rig.supervise(plan("a"), plan("b"), constraints=OneAtATime())
    os.kill(await ask(supervisor, "a"), signal.SIGKILL)
    async with asyncio.timeout(30):
        await ask(supervisor, "b")
    await rig.becomes("a", State.STOPPED)


async def test_u34_a_stalled_engine_is_ended_and_comes_back(rig: Rig) -> None:
    """Its request fails, SIGKILL follows SIGTERM, and the next request starts it anew."""
    supervisor = rig.supervise(plan(options="--ignore-term", grace_s=0.2))
    told: list[LlmsnapError] = []
    async with supervisor.lease("a") as lease:
        lease.on_abort = told.append
        stalled = lease.upstream
        supervisor.stalled("a", stalled.generation)
        await eventually(lambda: bool(told))
    assert isinstance(told[0], UpstreamLost)
    assert "stallTimeout" in str(told[0])
    assert await ask(supervisor, "a") != stalled.pid


async def test_nobody_is_sent_to_what_is_left_of_a_dead_server(rig: Rig) -> None:
    """The leader is killed, its grandchild takes its time: who comes then gets a new process."""
    server = plan(options="--ignore-term")
    argv = ("/bin/sh", "-c", f"{shlex.join(server.argv)} & wait")
    supervisor = rig.supervise(plan(argv=argv, port=server.endpoint.port, grace_s=1))
    async with supervisor.lease("a") as lease:
        told: list[LlmsnapError] = []
        lease.on_abort = told.append
        dead = lease.upstream
        assert dead.pid is not None
        os.kill(dead.pid, signal.SIGKILL)
        await eventually(lambda: bool(told))
    assert supervisor.view("a").state is State.STOPPING
    assert await ask(supervisor, "a") != dead.pid


async def test_u35_idle_time_does_not_count_while_loading(rig: Rig) -> None:
    """A ttl shorter than the load doesn't end it; afterwards it ends the idle model."""
    supervisor = rig.supervise(plan(options="--ready 1"), specs={"a": {"ttl_s": 0.2}})
    await ask(supervisor, "a")
    assert starts(rig, "a") == 1
    await rig.becomes("a", State.STOPPED)


async def test_u66_a_second_order_to_shut_down_means_now(rig: Rig) -> None:
    """A child that ignores SIGTERM doesn't hold it up."""
    supervisor = rig.supervise(plan(options="--ignore-term", grace_s=60))
    pid = await ask(supervisor, "a")
    first = asyncio.ensure_future(supervisor.shutdown(60))
    await rig.becomes("a", State.STOPPING)
    async with asyncio.timeout(30):
        await supervisor.shutdown(60)
        await first
    assert not psutil.pid_exists(pid)


async def test_a_shutdown_lets_answers_end(rig: Rig) -> None:
    """The process is ended when its last request has left, or when the grace is over."""
    supervisor = rig.supervise(plan())
    async with supervisor.lease("a") as lease:
        closing = asyncio.ensure_future(supervisor.shutdown(60))
        await asyncio.sleep(0)  # the order is given
        with pytest.raises(ShuttingDown):
            await ask(supervisor, "a")
        assert lease.upstream.pid is not None
        assert psutil.pid_exists(lease.upstream.pid)
    async with asyncio.timeout(30):
        await closing
    assert not psutil.pid_exists(lease.upstream.pid)


async def test_p44_unload_while_requests_wait_for_a_start(rig: Rig) -> None:
    """They get an error promptly; the half-started process is ended."""
    before = children()
    supervisor = rig.supervise(plan(options="--ready 60"))
    waiting = [asyncio.ensure_future(ask(supervisor, "a")) for _ in range(3)]
    await eventually(lambda: starts(rig, "a") == 1)
    async with asyncio.timeout(30):
        await supervisor.unload("a")
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, ModelUnloaded) for outcome in outcomes)
    assert children() <= before


async def test_p45_preload(rig: Rig) -> None:
    """Ready without any request, and not in use."""
    supervisor = rig.supervise(plan())
    await supervisor.load("a")
    view = supervisor.view("a")
    assert (view.state, view.in_flight, view.waiting) == (State.READY, 0, 0)


async def test_p52_an_upstream_that_dies_in_the_middle(rig: Rig) -> None:
    """Its client is told, the model is stopped, the proxy lives, the next request starts it."""
    supervisor = rig.supervise(plan())
    told: list[LlmsnapError] = []
    async with supervisor.lease("a") as lease:
        lease.on_abort = told.append
        assert lease.upstream.pid is not None
        os.kill(lease.upstream.pid, signal.SIGKILL)
        await eventually(lambda: bool(told))
        await rig.becomes("a", State.STOPPED)
    assert isinstance(told[0], UpstreamLost)
    assert "killed by SIGKILL" in str(told[0])
    await ask(supervisor, "a")


async def unload_twice(supervisor: Supervisor) -> None:
    """Both return."""
    await asyncio.gather(supervisor.unload("a"), supervisor.unload("a"))


async def unload_all(supervisor: Supervisor) -> None:
    """Beside a single one."""
    await asyncio.gather(supervisor.unload_all(), supervisor.unload("a"))


async def load_while_stopping(supervisor: Supervisor) -> None:
    """The load waits for the stop."""
    unloading = asyncio.ensure_future(supervisor.unload("a"))
    await asyncio.sleep(0)
    await supervisor.load("a")
    await unloading
    await supervisor.unload("a")


async def unload_while_starting(supervisor: Supervisor) -> None:
    """The load is told, the unload returns."""
    await supervisor.unload("a")
    loading = asyncio.ensure_future(supervisor.load("a"))
    await asyncio.sleep(0)
    await supervisor.unload("a")
    with pytest.raises(ModelUnloaded):
        await loading


@pytest.mark.parametrize(
    "orders",
    [unload_twice, unload_all, load_while_stopping, unload_while_starting],
    ids=lambda orders: orders.__name__,
)
async def test_orders_that_cross(rig: Rig, orders: Callable[[Supervisor], Awaitable[None]]) -> None:
    """Every call returns, and nothing is left running."""
    before = children()
    supervisor = rig.supervise(plan())
    await supervisor.load("a")
    async with asyncio.timeout(30):
        await orders(supervisor)
    assert supervisor.view("a").state is State.STOPPED
    assert children() <= before


async def test_a_pinned_model_is_up_without_a_request_and_again_after_a_crash(rig: Rig) -> None:
    """Nobody has to ask for it."""
    supervisor = rig.supervise(plan(), specs={"a": {"pinned": True}})
    await rig.becomes("a", State.READY)
    pid = supervisor.pid("a")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: supervisor.pid("a") not in (pid, None))
    await rig.becomes("a", State.READY)


async def test_two_models_on_one_port_name_each_other(rig: Rig) -> None:
    """A mistake in the file is told in words that help."""
    a = plan("a")
    b = plan("b", argv=serve_argv(a.endpoint.port), port=a.endpoint.port)
    supervisor = rig.supervise(a, b)
    pid = await ask(supervisor, "a")
    with pytest.raises(StartFailed, match=f"is taken by pid {pid} "):
        await ask(supervisor, "b")
