"""Which memory is in and which is out, in recorded and in real processes."""

from __future__ import annotations

import mmap
import os
import re
import struct
import sys

import pytest

from llmsnap.sleep import madvise
from llmsnap.sleep.madvise import Advice, Span
from llmsnap.sleep.mappings import IN_MEMORY, IN_SWAP, Mapping, parse, runs, spans
from tests.sleep.holder import MIB, holding

PAGE = mmap.PAGESIZE

# From a llama-server, shortened; the last lines from a CUDA process and one with io_uring.
MAPS = """\
5608cf1f5000-5608cf1f6000 r--p 00000000 fe:00 5311138                    /opt/llama/llama-server
5608cf1f6000-5608cf1f7000 r-xp 00001000 fe:00 5311138                    /opt/llama/llama-server
557512d64000-557514400000 rw-p 00000000 00:00 0                          [heap]
7f8d3c021000-7f8d40000000 ---p 00000000 00:00 0
7f8d53beb000-7f8dcc000000 rw-p 00000000 00:00 0
7f4674404000-7f46f4000000 r--s 00000000 fe:00 12         /models/my model.gguf (deleted)
7f46f5000000-7f46f5100000 rw-s 00000000 00:01 1025                       /dev/zero (deleted)
7f46f6000000-7f46f6100000 rw-s 00000000 00:19 7                          /dev/shm/psm_1
7ffc19a43000-7ffc19a64000 rw-p 00000000 00:00 0                          [stack]
7ffc19b5c000-7ffc19b60000 r--p 00000000 00:00 0                          [vvar]
7ffc19b60000-7ffc19b62000 r-xp 00000000 00:00 0                          [vdso]
200000000-200200000 rw-s 00000000 00:06 441                              /dev/nvidiactl
7f47e0000000-7f47e0200000 rw-s 00000000 00:05 5                          anon_inode:[io_uring]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
"""

OUT, IN, NEVER = 1 << 62, 1 << 63, 0


def pagemap(*entries: int) -> bytes:
    """A pagemap with these entries; the lower bits hold what isn't looked at."""
    return struct.pack(f"={len(entries)}Q", *(entry | 0x1234 for entry in entries))


def test_devices_and_the_kernels_own_pages_arent_touched() -> None:
    """Anonymous memory, files, shared memory and the stack are."""
    movable = [mapping.path for mapping in parse(MAPS) if mapping.movable]
    assert movable == [
        "/opt/llama/llama-server",
        "/opt/llama/llama-server",
        "[heap]",
        "",
        "/models/my model.gguf (deleted)",
        "/dev/zero (deleted)",
        "/dev/shm/psm_1",
        "[stack]",
    ]


def test_a_line_is_taken_apart() -> None:
    """Addresses are in hexadecimal, a name may hold blanks."""
    line = MAPS.splitlines()[5]
    (mapping,) = parse(line)
    assert mapping == Mapping(
        0x7F4674404000, 0x7F46F4000000, "r--s", "/models/my model.gguf (deleted)"
    )


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        pytest.param(IN_MEMORY, [Span(0, 2 * PAGE)], id="in memory"),
        pytest.param(IN_SWAP, [Span(2 * PAGE, 3 * PAGE)], id="in swap"),
    ],
)
def test_runs_of_pages(where: re.Pattern[bytes], expected: list[Span]) -> None:
    """Each is where its first two bits say."""
    entries = pagemap(IN, IN, OUT, OUT, OUT, NEVER)
    assert list(runs(entries, 0, where)) == expected


def test_a_few_other_pages_dont_cut_a_run_and_many_do() -> None:
    """Fifteen pages between two runs cost less than one more span."""
    near = pagemap(IN, *[OUT] * 15, IN)
    far = pagemap(IN, *[OUT] * 16, IN)
    assert list(runs(near, PAGE, IN_MEMORY)) == [Span(PAGE, 17 * PAGE)]
    assert list(runs(far, PAGE, IN_MEMORY)) == [Span(PAGE, PAGE), Span(18 * PAGE, PAGE)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_real_process_has_its_memory_in() -> None:
    """All that it filled is found, also what is too large to be looked at in one piece."""
    async with holding(160) as holder:
        assert covers(spans(holder.pid, IN_MEMORY), holder.span)
        assert not covers(spans(holder.pid, IN_SWAP), holder.span)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="pages out")
async def test_a_real_process_has_its_memory_out(swap: None) -> None:
    """Half of it was paged out: that half is found in swap, the other in memory."""
    async with holding(32) as holder:
        half = Span(holder.span.start, 16 * MIB)
        rest = Span(holder.span.start + 16 * MIB, 16 * MIB)
        madvise.advise(holder.pid, [half], Advice.PAGE_OUT)
        out, within = spans(holder.pid, IN_SWAP), spans(holder.pid, IN_MEMORY)
        assert covers(out, half)
        assert not covers(out, rest)
        assert covers(within, rest)
        assert not covers(within, half)


async def test_a_process_that_is_gone() -> None:
    """Its memory can't be looked at."""
    async with holding(1) as holder:
        pid = holder.pid
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        spans(pid, IN_MEMORY)


def covers(found: list[Span], wanted: Span) -> bool:
    """Whether all of `wanted` lies in `found`."""
    end = wanted.start + wanted.length
    within = sum(
        min(end, start + length) - max(wanted.start, start)
        for start, length in found
        if start < end and start + length > wanted.start
    )
    return within == wanted.length
