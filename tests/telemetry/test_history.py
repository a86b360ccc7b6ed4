"""Rows are found again, by everything that llama-swap's page asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.telemetry.activity import Activity
from llmsnap.telemetry.history import MOVE_SORTS, SORTS, History, Query
from llmsnap.telemetry.tokens import Tokens
from tests.helpers.waiting import eventually
from tests.telemetry.kept import NOON, batch, move, opened, request

ROWS = [
    request("b", at=NOON, tokens=Tokens(computed=100, cached=0, generated=10, prompt_s=1.0)),
    request("a", at=NOON + 10, ended_at=15.0, status=503),
    request("c", at=NOON + 20, tokens=Tokens(computed=30, cached=70, generated=20, prompt_s=0.1)),
    request(
        "a", at=NOON + 30, tokens=Tokens(computed=10, generated=40, generation_s=2.0, drafted=5)
    ),
]


async def ids(folder: Path, query: Query) -> list[int]:
    """The ids that `query` finds, in order."""
    async with opened(folder) as store:
        Activity(store, rows=lambda: 0, days=0).take(batch(*ROWS))
        history = History(store)

        async def all_there() -> bool:
            return (await history.requests(Query()))[1] == len(ROWS)

        await eventually(all_there)
        rows, _ = await history.requests(query)
    return [row.id for row in rows]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(), [4, 3, 2, 1]),
        (Query(ascending=True), [1, 2, 3, 4]),
        (Query(models=("a", "c")), [4, 3, 2]),
        (Query(models=("nobody",)), []),
        (Query(start=NOON + 10, end=NOON + 20), [3, 2]),
        (Query(min_id=2, max_id=3), [3, 2]),
        (Query(limit=3), [4, 3, 2]),
        (Query(limit=3, page=2), [1]),
        (Query(sort="model"), [3, 1, 4, 2]),
        (Query(sort="model", ascending=True), [2, 4, 1, 3]),
        (Query(sort="prompt"), [1, 3, 4, 2]),
        (Query(sort="cached"), [3, 1, 4, 2]),
        (Query(sort="prompt_speed"), [3, 1, 4, 2]),
        (Query(sort="gen_speed"), [4, 3, 2, 1]),
        (Query(sort="drafted"), [4, 3, 2, 1]),
        (Query(sort="duration"), [2, 4, 3, 1]),
        (Query(sort="resp_status_code"), [2, 4, 3, 1]),
    ],
)
async def test_what_is_asked_for_is_found(
    tmp_path: Path, query: Query, expected: list[int]
) -> None:
    """By model, time and id, page by page, in any order; the newer first among equals."""
    assert await ids(tmp_path, query) == expected


@pytest.mark.parametrize("sort", SORTS)
async def test_every_order_is_one(tmp_path: Path, sort: str) -> None:
    """The database knows what each of them means."""
    assert sorted(await ids(tmp_path, Query(sort=sort))) == [1, 2, 3, 4]


async def test_moves_are_found_too(tmp_path: Path) -> None:
    """By model and kind, in each of their orders."""
    async with opened(tmp_path) as store:
        moves = (move("a", "start"), move("a", "stop"), move("b", "wake", ended_at=8.0))
        Activity(store, rows=lambda: 0, days=0).take(batch(*moves))
        history = History(store)

        async def found(query: Query) -> list[int]:
            rows, _ = await history.moves(query)
            return [row.id for row in rows]

        async def all_there() -> bool:
            return await found(Query()) == [3, 2, 1]

        await eventually(all_there)
        assert await found(Query(models=("a",), kinds=("start", "wake"))) == [1]
        assert await found(Query(sort="duration")) == [2, 1, 3]
        for sort in MOVE_SORTS:
            assert sorted(await found(Query(sort=sort))) == [1, 2, 3]


async def test_sums_are_of_all_or_of_one(tmp_path: Path) -> None:
    """What isn't known counts for nothing, and makes no histogram."""
    async with opened(tmp_path) as store:
        history = History(store)
        nothing = await history.stats()
        assert (nothing.total_requests, nothing.total_input_tokens) == (0, 0)
        assert nothing.gen_histogram is None
        Activity(store, rows=lambda: 0, days=0).take(batch(*ROWS))

        async def all_there() -> bool:
            return (await history.stats()).total_requests == len(ROWS)

        await eventually(all_there)
        every, one = await history.stats(), await history.stats(["c"])

    assert (every.total_input_tokens, every.total_output_tokens) == (140, 70)
    assert every.total_cache_tokens == 70
    assert every.prompt_histogram is not None
    assert (every.prompt_histogram.min, every.prompt_histogram.max) == (100.0, 300.0)
    assert every.gen_histogram is not None
    assert every.gen_histogram.p50 == 20.0
    assert (one.total_requests, one.total_cache_tokens, one.gen_histogram) == (1, 70, None)
