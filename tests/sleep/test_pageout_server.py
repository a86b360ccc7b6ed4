"""Real llama-servers sleep and wake: their KV cache is still there, and streams go on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from llmsnap.errors import SleepRefused
from llmsnap.memory.host import Host
from llmsnap.memory.kernel import Room
from llmsnap.sleep.driver import Supported, Unsupported
from llmsnap.sleep.pageout import PageOutDriver
from tests.helpers.waiting import eventually
from tests.sleep.server import CONVERSATION, Server, listens, serving

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0, reason="needs Linux and CAP_SYS_NICE"
    ),
]

STREAMED = 300
CYCLES = 100
SETTLED = 3
"""Cycles after which nothing may grow any more: what isn't used stays out from the first on."""


@pytest.fixture
def driver() -> PageOutDriver:
    """The driver on this machine."""
    return PageOutDriver(Host(), listens)


@pytest.mark.parametrize("in_shell", [False, True], ids=["itself", "below a shell"])
async def test_a_conversation_goes_on(swap: None, driver: PageOutDriver, in_shell: bool) -> None:
    """Nothing is computed again, and the answers are those of a server that never slept."""
    async with serving() as undisturbed:
        expected = [await undisturbed.ask() for _ in range(3)]

    async with serving(in_shell=in_shell) as server:
        answers = [await server.ask()]
        for _ in range(2):
            verdict = await driver.probe(server.target)
            assert isinstance(verdict, Supported), verdict
            assert verdict.can_pause
            out = await driver.sleep(server.target)
            assert server.states == {"T"}
            assert len(server.pids) == 1 + in_shell
            back = await driver.wake(server.target)
            answers.append(await server.ask())
            print(f"asleep after {out.seconds:.3f} s, awake after {back.seconds:.3f} s")

    assert [answer.text for answer in answers] == [answer.text for answer in expected]
    for answer in answers[1:]:
        assert answer.cached >= 590
        assert answer.cached + answer.computed == 602


async def test_asleep_it_holds_hardly_any_memory(swap: None, driver: PageOutDriver) -> None:
    """All that it had besides files is in swap."""
    async with serving() as server:
        await server.ask()
        before = server.usage
        await driver.sleep(server.target)
        asleep = server.usage
        assert asleep.anonymous_bytes + asleep.shared_bytes < before.rss_bytes / 10
        assert asleep.swap_bytes > 0.9 * before.anonymous_bytes


async def test_a_stream_is_paused_and_goes_on(swap: None, driver: PageOutDriver) -> None:
    """Another server answers meanwhile; the text is, byte for byte, that of one that ran on."""
    async with serving() as undisturbed:
        expected = (await undisturbed.ask(CONVERSATION, STREAMED)).text

    async with serving() as server, serving(seed=1) as other:
        pieces: list[str] = []

        async def read() -> None:
            async for piece in server.stream(CONVERSATION, STREAMED):
                pieces.append(piece)  # noqa: PERF401  (they are looked at meanwhile)

        reading = asyncio.ensure_future(read())
        await eventually(lambda: len(pieces) > 20)
        await driver.sleep(server.target)
        assert (await other.ask("hello")).text
        paused_at = len(pieces)
        assert paused_at < STREAMED
        assert (await other.ask("hello")).cached  # time passes, and nothing more comes
        assert len(pieces) == paused_at

        await driver.wake(server.target)
        await reading
    assert "".join(pieces) == expected


@pytest.mark.slow
async def test_a_hundred_cycles_leave_nothing_behind(swap: None, driver: PageOutDriver) -> None:
    """Memory, swap and open files, the server's and ours, are as after the third cycle."""
    async with serving() as server:
        await server.ask()
        await cycle(server, driver, SETTLED)
        first = holdings(server)
        seconds = await cycle(server, driver, CYCLES - SETTLED)
        last = holdings(server)
    print(f"after {SETTLED}: {first}; after {CYCLES}: {last}; {seconds:.1f} s on the move")
    for name, value in last.items():
        assert value <= first[name] * 1.05, name


async def cycle(server: Server, driver: PageOutDriver, count: int) -> float:
    """Sleep, wake and go on with the conversation so often; return the seconds it moved."""
    seconds = 0.0
    for _ in range(count):
        seconds += (await driver.sleep(server.target)).seconds
        seconds += (await driver.wake(server.target)).seconds
        assert (await server.ask(tokens=8)).cached >= 590
    return seconds


def holdings(server: Server) -> dict[str, int]:
    """What could leak."""
    server_usage, own_usage = server.usage, Host().usage([os.getpid()])
    return {
        # Together: how much is still in swap changes with other tests, which make and end some.
        "memory": server_usage.rss_bytes + server_usage.swap_bytes,
        "files": server.open_files,
        "own rss": own_usage.rss_bytes,
        "own files": len(os.listdir("/proc/self/fd")),
    }


async def test_a_stopped_tree_is_killed(swap: None, driver: PageOutDriver) -> None:
    """Shell and server die at once, though both are stopped."""
    async with serving(in_shell=True) as server:
        await driver.sleep(server.target)
        pids = server.pids
        assert len(pids) == 2
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(server.process.wait(), 30)
        await eventually(lambda: not Path(f"/proc/{pids[1]}").exists(), what="the server is gone")


class Boaster(Host):
    """Says that there is more swap than there is."""

    def swap(self, pid: int | None = None) -> Room:
        return Room(2**40, 2**40)


async def test_swap_runs_full(little_swap: None, driver: PageOutDriver) -> None:
    """Somebody else may take it in the meantime: the server then goes on as if nothing was."""
    async with serving() as server:
        before = await server.ask()
        with pytest.raises(SleepRefused, match=r"swap full \(.* are left\)"):
            await PageOutDriver(Boaster(), listens).sleep(server.target)
        assert "T" not in server.states
        after = await server.ask()
        assert (after.text, after.cached) == (before.text, 601)
        assert isinstance(await driver.probe(server.target), Unsupported)


class Swapless(Host):
    """Says that there is no swap; another test may have made some at this moment."""

    def swap(self, pid: int | None = None) -> Room:
        return Room(0, 0)


async def test_without_swap_the_reason_is_named() -> None:
    """With what is to be done."""
    async with serving() as server:
        verdict = await PageOutDriver(Swapless(), listens).probe(server.target)
        assert isinstance(verdict, Unsupported)
        assert "make a swap file" in verdict.reason


async def test_a_server_that_isnt_ours_isnt_stopped(swap: None, driver: PageOutDriver) -> None:
    """What listens on the model's port isn't below the process that was started."""
    async with serving() as server, serving(seed=1) as other:
        mixed_up = replace(other.target, pid=server.process.pid)
        verdict = await driver.probe(mixed_up)
        assert isinstance(verdict, Unsupported)
        assert "out of reach" in verdict.reason
