"""Moving the memory of real processes to swap and back."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

import pytest

from llmsnap.memory.host import Host
from llmsnap.memory.kernel import Room, Usage
from llmsnap.sleep import pager
from llmsnap.sleep.driver import Supported, Unsupported
from llmsnap.sleep.offload import Deadline
from llmsnap.sleep.pager import Memory, NotOut
from tests.helpers.waiting import eventually
from tests.sleep.holder import MIB, holding, without_capability

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs Linux and CAP_SYS_NICE"
)


def page_out(*pids: int) -> Usage:
    """Page these out, and return what they still hold."""
    pager.page_out(Host(), pids, Deadline(20))
    return Host().usage(pids)


async def test_hardly_anything_stays_in_memory(swap: None) -> None:
    """All kinds of memory go, and what comes back is the same."""
    async with holding(64) as holder:
        before = await holder.checksum()
        rss = holder.usage.rss_bytes
        left = page_out(holder.pid)
        assert left.anonymous_bytes + left.shared_bytes < 2 * MIB
        assert left.rss_bytes < rss / 4  # of a program's file, pages may be other processes' too
        assert await holder.checksum() == before


async def test_shared_memory_goes_as_well(swap: None) -> None:
    """It has no file, so it needs swap like any other."""
    async with holding(64, "--share") as holder:
        before = await holder.checksum()
        assert holder.usage.shared_bytes >= 64 * MIB
        assert page_out(holder.pid).shared_bytes < 6 * MIB
        assert await holder.checksum() == before


async def test_locked_memory_is_said_to_stay(swap: None) -> None:
    """With figures: what stays, of how much."""
    async with holding(64, "--lock") as holder:
        with pytest.raises(NotOut, match=r"6\d(\.\d+)? MiB of \d+(\.\d+)? MiB stay in memory"):
            page_out(holder.pid)


async def test_memory_that_a_stranger_shares_is_said_to_stay(swap: None) -> None:
    """The kernel doesn't page out what another process has mapped too."""
    async with holding(64, "--fork") as holder:
        await eventually(lambda: len(Host().tree(holder.pid)) == 2)
        with pytest.raises(NotOut, match="stay in memory"):
            page_out(holder.pid)


async def test_a_deadline_ends_it(swap: None) -> None:
    """Before the next call into the kernel."""
    async with holding(64) as holder:
        late = Deadline(60)
        late.call_off()
        with pytest.raises(TimeoutError):
            pager.page_out(Host(), [holder.pid], late)
        with pytest.raises(TimeoutError):
            pager.fetch([Memory(holder.pid, (holder.span,))], late, mapped=True)
        assert holder.usage.swap_bytes == 0


async def test_what_is_fetched_and_mapped_is_in_place(swap: None) -> None:
    """The process finds each page; nothing that it had is left out."""
    async with holding(64) as holder:
        before, memories = await holder.checksum(), pager.in_memory([holder.pid])
        held = page_out(holder.pid)
        assert held.swap_bytes > 58 * MIB

        pager.fetch(memories, Deadline(20), mapped=True)
        assert holder.usage.anonymous_bytes >= 64 * MIB
        assert await holder.checksum() == before


async def test_what_is_fetched_but_not_mapped_shows_later_what_was_used(swap: None) -> None:
    """That is how the next sleep knows what the next wake must bring back."""
    async with holding(64) as holder:
        before = await holder.checksum()
        memories = pager.in_memory([holder.pid])
        page_out(holder.pid)

        pager.fetch(memories, Deadline(20), mapped=False)
        assert sum(memory.bytes for memory in pager.in_memory([holder.pid])) < 8 * MIB
        assert await holder.checksum() == before
        (used,) = pager.in_memory([holder.pid])
        assert used.bytes >= 64 * MIB


async def test_what_is_in_swap_can_be_found_without_a_record(swap: None) -> None:
    """For those who didn't look before it was paged out."""
    async with holding(64) as holder:
        before = await holder.checksum()
        page_out(holder.pid)
        memories = pager.in_swap([holder.pid])
        assert sum(memory.bytes for memory in memories) > 58 * MIB
        pager.fetch(memories, Deadline(20), mapped=True)
        assert pager.in_swap([holder.pid])[0].bytes < MIB
        assert await holder.checksum() == before


async def test_a_process_that_ended_cant_be_fetched(swap: None) -> None:
    """It is an error, not an empty success."""
    async with holding(16) as holder:
        memories = pager.in_memory([holder.pid])
    with pytest.raises(ProcessLookupError):
        pager.fetch(memories, Deadline(20), mapped=True)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
async def test_without_the_capability_memory_is_fetched_by_reading_alone(swap: None) -> None:
    """Whoever pages out through a cgroup mustn't use process_madvise at wake either."""
    async with holding(64) as holder:
        before = await holder.checksum()
        page_out(holder.pid)
        script = (
            "from llmsnap.sleep import pager; from llmsnap.sleep.offload import Deadline;"
            f"pager.fetch(pager.in_swap([{holder.pid}]), Deadline(20), mapped=False)"
        )
        await without_capability(script)
        assert holder.usage.anonymous_bytes >= 64 * MIB
        assert await holder.checksum() == before


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
async def test_without_capability_and_cgroup_there_is_no_way_out() -> None:
    """The reason names both remedies."""
    async with holding(1) as holder:
        script = f"from llmsnap.sleep import pager; print(pager.way_out([{holder.pid}]))"
        said = await without_capability(script)
        assert "AmbientCapabilities=CAP_SYS_NICE" in said
        assert "systemd-run --user --scope" in said


class Machine(Host):
    """This machine, but with other swap."""

    def __init__(self, total: int, free: int) -> None:
        super().__init__()
        self._room = Room(total, free)

    def swap(self, pid: int | None = None) -> Room:
        return self._room

    def usage(self, pids: Iterable[int]) -> Usage:
        held = super().usage(pids)
        return held + Usage(swap_bytes=5 * MIB)


async def test_the_verdict_counts_what_will_be_in_swap() -> None:
    """What is to go there, and what is there already."""
    async with holding(16) as holder:
        machine = Machine(MIB << 10, MIB << 10)
        verdict = pager.verdict(machine, [holder.pid], can_pause=True)
        assert isinstance(verdict, Supported)
        assert (verdict.tier, verdict.can_pause) == ("swap", True)
        assert verdict.tier_bytes == holder.usage.anonymous_bytes + 5 * MIB > 21 * MIB


async def test_the_verdict_when_swap_is_short_or_memory_locked() -> None:
    """Each with its reason."""
    async with holding(16) as holder:
        assert isinstance(pager.verdict(Machine(MIB, MIB), [holder.pid]), Unsupported)
        promised = pager.verdict(Machine(MIB << 10, MIB << 10), [holder.pid], promised=1020 * MIB)
        assert isinstance(promised, Unsupported)
        assert "swap is short" in promised.reason
    async with holding(16, "--lock") as holder:
        locked = pager.verdict(Machine(MIB << 10, MIB << 10), [holder.pid])
        assert isinstance(locked, Unsupported)
        assert "--mlock" in locked.reason
