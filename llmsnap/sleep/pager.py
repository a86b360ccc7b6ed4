"""Move the memory of processes out to swap and back, all of them together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from llmsnap.config.quantities import size_text
from llmsnap.sleep import madvise, mappings, pageable, reclaim
from llmsnap.sleep.driver import Supported, Unsupported, Verdict
from llmsnap.sleep.madvise import Advice, Span
from llmsnap.sleep.offload import Deadline, for_each
from llmsnap.sleep.pageable import Held, Machine, only_for_swap

_OUT_AT_ONCE: Final = 256 << 20
_IN_AT_ONCE: Final = 16 << 20
_MOST_THREADS: Final = 4
_PAUSES_S: Final = (0.0, 0.01, 0.05, 0.2, 0.5)
"""Before each try: what the kernel has in hand just then is skipped, and goes the next time."""
_PERMITTED_SHARE: Final = 10
"""One part in so many may stay in memory."""

Way = Callable[[Sequence[int], Deadline], None]
"""Asks the kernel to page out these processes."""


class NotOut(Exception):
    """Too much stays in memory."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one process."""

    pid: int
    spans: tuple[Span, ...]

    @property
    def bytes(self) -> int:
        """How much it is."""
        return sum(span.length for span in self.spans)


def way_out(pids: Sequence[int]) -> Way | str:
    """Return a way to page out `pids`, or why there is none, with the remedy."""
    fault = madvise.fault(pids[0], Advice.PAGE_OUT)
    if not fault:
        return _by_advice
    folder = reclaim.own_cgroup(pids)
    return fault if folder is None else partial(_by_reclaim, folder)


def verdict(
    machine: Machine, pids: Sequence[int], *, promised: int = 0, can_pause: bool = False
) -> Verdict:
    """Return whether `pids` can be paged out, when `promised` bytes of swap are others'."""
    held = machine.usage(pids)
    fault = pageable.lock_fault(held)
    if fault := fault or pageable.swap_fault(held, machine.swap(), promised=promised):
        return Unsupported(fault)
    if isinstance(way := way_out(pids), str):
        return Unsupported(way)
    size = only_for_swap(held) + held.swap_bytes
    return Supported(tier="swap", tier_bytes=size, can_pause=can_pause)


def in_memory(pids: Iterable[int]) -> list[Memory]:
    """Return what of `pids` is in memory, files that they have mapped included."""
    return [Memory(pid, tuple(mappings.spans(pid, mappings.IN_MEMORY))) for pid in pids]


def in_swap(pids: Iterable[int]) -> list[Memory]:
    """Return what of `pids` is in swap."""
    return [Memory(pid, tuple(mappings.spans(pid, mappings.IN_SWAP))) for pid in pids]


def page_out(machine: Machine, pids: Sequence[int], deadline: Deadline) -> Held:
    """Page out `pids` until no more than a tenth stays in memory; return what they still hold.

    Pages of files don't count among what stays: they may be other processes' as well, or not ours
    to drop, and the kernel does so whenever it likes. Raises NotOut, and TimeoutError.
    """
    if isinstance(way := way_out(pids), str):
        raise NotOut(way)
    before = machine.usage(pids)
    permitted = before.rss_bytes // _PERMITTED_SHARE
    after = before
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        last, after = after, _paged_out(machine, pids, way, deadline)
        if after.rss_bytes <= permitted:
            return after
        if only_for_swap(after) <= permitted and after.rss_bytes == last.rss_bytes:
            return after
    if only_for_swap(after) <= permitted:
        return after
    raise NotOut(
        f"{size_text(only_for_swap(after))} of {size_text(before.rss_bytes)} stay in memory; is "
        f"swap full ({size_text(machine.swap().free_bytes)} are left), or memory shared or pinned?"
    )


def fetch(memories: Iterable[Memory], deadline: Deadline, *, mapped: bool) -> None:
    """Bring `memories` back in; return when they are there.

    `mapped`: the processes find each page in place. Otherwise they map it when they first use it,
    which is how the pages that they do use are told from the rest. Raises TimeoutError, and
    ProcessLookupError when a process has ended.
    """
    pieces = [
        (memory.pid, batch)
        for memory in memories
        for batch in madvise.batches(memory.spans, _IN_AT_ONCE)
    ]

    def bring(piece: tuple[int, list[Span]]) -> None:
        deadline.check()
        _bring(*piece, mapped=mapped)

    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    for_each(pieces, bring, threads=threads)


def _bring(pid: int, spans: Sequence[Span], *, mapped: bool) -> None:
    """Have all of `spans` read at once, then see that they have come."""
    advised = _permitted(lambda: madvise.advise(pid, spans, Advice.NEEDED_SOON))
    last = spans[-1]
    if mapped or not advised:
        _permitted(lambda: sum(madvise.read_through(pid, span) for span in spans))
    else:  # what is asked for last comes last, or nearly so
        _permitted(lambda: madvise.read_through(pid, Span(last.start + last.length - 1, 1)))


def _permitted(act: Callable[[], int]) -> bool:
    """Do one of two things of which either will do; return whether we may."""
    try:
        act()
    except PermissionError:
        return False
    return True


def _paged_out(machine: Machine, pids: Sequence[int], way: Way, deadline: Deadline) -> Held:
    way(pids, deadline)
    return machine.usage(pids)


def _by_advice(pids: Sequence[int], deadline: Deadline) -> None:
    for memory in in_memory(pids):
        for batch in madvise.batches(memory.spans, _OUT_AT_ONCE):
            deadline.check()
            madvise.advise(memory.pid, batch, Advice.PAGE_OUT)


def _by_reclaim(folder: Path, pids: Sequence[int], deadline: Deadline) -> None:
    reclaim.reclaim(folder, deadline)
