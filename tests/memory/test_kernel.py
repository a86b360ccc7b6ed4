"""Sizes that the kernel writes, and what follows from them."""

from __future__ import annotations

from llmsnap.memory import kernel
from llmsnap.memory.kernel import Room, Usage
from tests.memory.recordings import GIB, KIB, PAGED_OUT, STATUS, WITHOUT_SWAP, WOKEN


def test_a_machine_without_swap() -> None:
    """All that is available is RAM, and there is no room in swap."""
    meminfo = kernel.sizes(WITHOUT_SWAP)
    assert kernel.ram(meminfo) == Room(24683652 * KIB, 23948692 * KIB)
    assert kernel.swap(meminfo) == Room(0, 0)


def test_copies_of_what_was_paged_out_are_free_ram() -> None:
    """They are in swap already and nobody has them mapped, so the kernel just drops them."""
    ram = kernel.ram(kernel.sizes(PAGED_OUT))
    assert ram.free_bytes == (21273328 + 1276 + 2766256 - 804220 - 8932) * KIB
    assert ram.free_bytes - 21273328 * KIB > 1.8 * GIB


def test_the_swap_of_a_sleeping_process_isnt_free_while_copies_are_in_memory() -> None:
    """Dropping the copies is what makes the RAM free: the swap must stay."""
    free = kernel.swap(kernel.sizes(PAGED_OUT)).free_bytes
    assert 0 <= free - 4149948 * KIB < 2**20


def test_what_is_mapped_again_is_no_free_ram_but_its_swap_is_free() -> None:
    """An awake process uses the copy in memory; its place in swap is given up when wanted."""
    meminfo = kernel.sizes(WOKEN)
    assert kernel.ram(meminfo).free_bytes - 21208072 * KIB < 0.2 * GIB
    total, free = 6291452 * KIB, kernel.swap(meminfo).free_bytes
    untouched = 170956 * KIB  # what the only process in swap still has there
    assert abs(total - untouched - free) < 2**20


def test_locked_memory_makes_swap_look_smaller_never_larger() -> None:
    """It isn't known whether locked pages are anonymous, so the worse is supposed."""
    meminfo = kernel.sizes(WOKEN)
    assert kernel.swap({**meminfo, "Mlocked": 10 * GIB}).free_bytes == meminfo["SwapFree"]


def test_there_is_never_more_free_than_there_is() -> None:
    """Swap that comes or goes just then is in one figure and not yet in another."""
    copies = {"SwapCached": 100 * KIB, "Active(anon)": 900 * KIB, "AnonPages": 900 * KIB}
    swap = {"SwapTotal": 1000 * KIB, "SwapFree": 1000 * KIB, **copies}
    assert kernel.swap(swap) == Room(1000 * KIB, 1000 * KIB)


def test_usage_is_read_from_status() -> None:
    """RSS by kind, and what is out."""
    assert kernel.usage(STATUS) == Usage(
        rss_bytes=1981504 * KIB,
        anonymous_bytes=1970568 * KIB,
        file_bytes=10936 * KIB,
        shared_bytes=0,
        swap_bytes=170956 * KIB,
        locked_bytes=0,
    )


def test_a_zombie_holds_nothing() -> None:
    """Its status has no lines about memory."""
    assert kernel.usage("Name:\tllama-server\nState:\tZ (zombie)\nThreads:\t1\n") == Usage()


def test_usage_adds_up() -> None:
    """A tree holds what its processes hold."""
    one = kernel.usage(STATUS)
    both = one + one
    assert both.rss_bytes == 2 * one.rss_bytes
    assert both.swap_bytes == 2 * one.swap_bytes


def test_a_name_may_hold_brackets() -> None:
    """The parent's pid stands behind the last bracket."""
    assert kernel.parent("7 (a) b (c)) S 42 7 7 0 -1") == 42


def test_room_within_a_limit() -> None:
    """A limit makes the whole smaller, and what is left no larger, and never negative."""
    room = Room(100, 80)
    assert room.within(None, 0) == room
    assert room.within(50, 20) == Room(50, 20)
    assert room.within(500, 400) == room
    assert room.within(50, -3) == Room(50, 0)
