"""How many caches there are, and what fits into one."""

from __future__ import annotations

import pytest

from llmsnap.sessions.pool import cache_count, empties_idle, to_empty
from llmsnap.sessions.slots import Slot


@pytest.mark.parametrize(
    ("options", "env", "count"),
    [
        ("", {}, 1),
        ("-np 1", {}, 1),
        ("-np 3", {}, 3),
        ("--parallel=3", {}, 3),
        ("-np -1", {}, 1),
        ("-np 3 -kvu", {}, 1),
        ("-np 3 --kv-unified", {}, 1),
        ("--no-kv-unified", {}, 4),
        ("", {"LLAMA_ARG_N_PARALLEL": "2"}, 2),
        ("-np 3", {"LLAMA_ARG_KV_UNIFIED": "1"}, 1),
        ("-np 3 -kvu -no-kvu", {"LLAMA_ARG_KV_UNIFIED": "1"}, 3),
        ("-np 3", {"LLAMA_ARG_KV_UNIFIED": "off"}, 3),
    ],
)
def test_slots_have_one_cache_or_one_each(options: str, env: dict[str, str], count: int) -> None:
    """Where the number of slots isn't said, they share one."""
    assert cache_count(["llama-server", *options.split()], env) == count


@pytest.mark.parametrize(
    ("options", "does"),
    [
        ("", True),
        ("-np 3 -kvu", True),
        ("-np 3", False),
        ("-np 1", False),
        ("--no-cache-idle-slots", False),
        ("--cache-ram 0", False),
        ("-cram 512", True),
    ],
)
def test_e06_idle_slots_are_emptied_where_they_share_a_cache(options: str, does: bool) -> None:
    """Into a cache in RAM, if the server has one."""
    assert empties_idle(["llama-server", *options.split()], {}) is does


def slot(number: int, held: int | None, task: int, *, busy: bool = False) -> Slot:
    """One of a cache of 4,096 tokens."""
    return Slot(number, 4096, busy, task, held)


EMPTY = Slot(0, n_ctx=4096)


@pytest.mark.parametrize(
    ("others", "going"),
    [
        ([], []),
        ([slot(1, 2000, 1)], []),
        ([slot(1, 3000, 1)], [1]),
        ([slot(1, 1500, 5), slot(2, 1500, 3)], [2]),
        ([slot(1, 2000, 1, busy=True), slot(2, 500, 2)], [2]),
        ([slot(1, 3000, 1, busy=True), slot(2, 500, 2)], None),
        ([slot(1, None, 1)], []),
        ([slot(3, None, 1)], [3]),
        ([slot(4, 3000, 1)], None),
    ],
)
def test_the_idle_ones_that_were_used_longest_ago_make_room(
    others: list[Slot], going: list[int] | None
) -> None:
    """For 2,000 tokens; slot 3 was restored into and tells nothing of it, slot 4 has to stay."""
    found = to_empty([EMPTY, *others], EMPTY, 2000, held={3: 3000}, taken={4})
    assert (None if found is None else [slot.id for slot in found]) == going


def test_e08_room_is_left_for_what_others_are_about_to_read() -> None:
    """A request that is under way takes its room while a restore is ordered."""
    others = [slot(1, 500, 1, busy=True), slot(2, 400, 2)]
    for coming, going in ((500, []), (1600, []), (1800, [2]), (2500, None)):
        found = to_empty([EMPTY, *others], EMPTY, 2000, held={}, taken=(), coming=coming)
        assert (None if found is None else [slot.id for slot in found]) == going


def test_nothing_is_emptied_where_the_context_isnt_told() -> None:
    """Then it's left to the server."""
    assert to_empty([Slot(0), slot(1, 9000, 1)], Slot(0), 2000, held={}, taken=()) == []
