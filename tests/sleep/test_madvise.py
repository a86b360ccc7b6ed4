"""System calls on a real process's memory."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

import pytest

from llmsnap.sleep import madvise
from llmsnap.sleep.madvise import Advice, Span, batches
from tests.sleep.holder import MIB, holding, without_capability

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's system calls")
may_advise = pytest.mark.skipif(os.geteuid() != 0, reason="needs CAP_SYS_NICE")


def test_batches_are_cut_to_size() -> None:
    """Long spans are cut, short ones gathered; order and bytes stay."""
    found = list(batches([Span(0, 25), Span(100, 3), Span(200, 4)], 10))
    assert found == [
        [Span(0, 10)],
        [Span(10, 10)],
        [Span(20, 5), Span(100, 3), Span(200, 2)],
        [Span(202, 2)],
    ]


def test_a_batch_has_no_more_spans_than_the_kernel_takes() -> None:
    """However small they are."""
    found = list(batches([Span(start, 1) for start in range(2500)], 10**9))
    assert [len(batch) for batch in found] == [1024, 1024, 452]


def test_the_kernel_may_stop_in_the_middle_of_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on there."""
    asked: list[list[Span]] = []

    def ten_at_a_time(handle: int, spans: Iterable[Span], advice: Advice) -> int:
        asked.append(list(spans))
        return min(10, sum(span.length for span in asked[-1]))

    monkeypatch.setattr(madvise, "_madvise", ten_at_a_time)
    assert madvise.advise(os.getpid(), [Span(0, 15), Span(50, 8)], Advice.PAGE_OUT) == 23
    assert asked == [[Span(0, 15), Span(50, 8)], [Span(10, 5), Span(50, 8)], [Span(55, 3)]]


@may_advise
async def test_memory_goes_out_and_comes_back_unchanged(swap: None) -> None:
    """Paged out it is in swap; asked for, the process finds it again."""
    async with holding(64) as holder:
        before = await holder.checksum()

        assert madvise.advise(holder.pid, [holder.span], Advice.PAGE_OUT) == 64 * MIB
        out = holder.usage
        assert out.swap_bytes > 60 * MIB  # some pages are in the kernel's hands just then
        assert out.anonymous_bytes < 16 * MIB

        assert madvise.advise(holder.pid, [holder.span], Advice.NEEDED_SOON) == 64 * MIB
        assert holder.usage.swap_bytes > 60 * MIB  # in memory, but nobody has it mapped yet
        assert await holder.checksum() == before


@may_advise
async def test_reading_through_maps_the_pages(swap: None) -> None:
    """The process needn't fetch any of them itself."""
    async with holding(64) as holder:
        before = await holder.checksum()
        madvise.advise(holder.pid, [holder.span], Advice.PAGE_OUT)

        assert madvise.read_through(holder.pid, holder.span) == 64 * MIB
        assert holder.usage.anonymous_bytes >= 64 * MIB
        assert await holder.checksum() == before


@may_advise
async def test_what_the_kernel_refuses_is_left_out(swap: None) -> None:
    """Nothing is mapped at page 1, and locked memory stays; the rest goes."""
    async with holding(16, "--lock") as locked:
        spans = [Span(os.sysconf("SC_PAGESIZE"), 4096), locked.span]
        assert madvise.advise(locked.pid, spans, Advice.PAGE_OUT) == 0
    async with holding(16) as holder:
        spans = [Span(os.sysconf("SC_PAGESIZE"), 4096), holder.span]
        assert madvise.advise(holder.pid, spans, Advice.PAGE_OUT) == 16 * MIB


async def test_reading_ends_where_nothing_is_mapped() -> None:
    """What lies before it has been read."""
    async with holding(1) as holder:
        assert madvise.read_through(holder.pid, Span(os.sysconf("SC_PAGESIZE"), 4096)) == 0


async def test_a_process_that_is_gone() -> None:
    """Both calls say so, and nobody else who got its pid could be meant."""
    async with holding(1) as holder:
        pid, span = holder.pid, holder.span
    with pytest.raises(ProcessLookupError):
        madvise.advise(pid, [span], Advice.PAGE_OUT)
    with pytest.raises(ProcessLookupError):
        madvise.read_through(pid, span)


@may_advise
async def test_asking_whether_we_may_does_nothing() -> None:
    """The memory stays where it is."""
    async with holding(16) as holder:
        before = holder.usage
        assert madvise.fault(holder.pid, Advice.PAGE_OUT) == ""
        assert holder.usage == before


@may_advise
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
async def test_without_the_capability_the_reason_is_named() -> None:
    """Root in a container often has no CAP_SYS_NICE."""
    async with holding(1) as holder:
        script = (
            "from llmsnap.sleep.madvise import Advice, fault;"
            f"print(fault({holder.pid}, Advice.PAGE_OUT))"
        )
        assert "CAP_SYS_NICE" in await without_capability(script)
