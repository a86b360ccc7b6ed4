"""Rows are kept, for as long and as many as is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.core.cause import Cause, Why
from llmsnap.store.store import Store
from llmsnap.telemetry.activity import Activity
from llmsnap.telemetry.history import History, Query
from llmsnap.telemetry.record import Departure
from llmsnap.telemetry.recorder import FLOOD_PER_S
from tests.helpers.waiting import eventually
from tests.telemetry.kept import CACHED, DAY_S, NOON, WAITED, batch, move, opened, request, wake


async def count(store: Store, table: str = "requests") -> int:
    """How many rows there are."""
    ((rows,),) = await store.read(f"SELECT count(*) FROM {table}")
    return int(rows)


async def has(store: Store, rows: int, table: str = "requests") -> None:
    """Wait until there are so many rows."""

    async def is_so() -> bool:
        return await count(store, table) == rows

    await eventually(is_so)


async def test_a_request_is_kept_with_all_that_is_known(tmp_path: Path) -> None:
    """Its tokens, its phases, and the way up that it waited for, among others of that model."""
    announced: list[int] = []
    swap = wake(at=NOON - 4.1)
    waited = request(
        phases=WAITED,
        swap=swap,
        tokens=CACHED,
        is_stream=True,
        forwarded_at=14.1,
        first_byte_at=14.5,
        content_at=14.75,
        ended_at=23.0,
    )
    async with opened(tmp_path) as store:
        activity = Activity(store, rows=lambda: 0, days=0, announce=announced.append)
        activity.take(batch(wake(at=NOON - 90), move("a", "stop", at=NOON - 50), swap, waited))
        await has(store, 1)
        found = await History(store).request(1)

    assert announced == [1]
    assert found is not None
    row, its_swap = found
    assert (row.model, row.path, row.client, row.kind) == (
        "a",
        "/v1/completions",
        "::1",
        "application/json",
    )
    assert (row.computed, row.cached, row.generated, row.drafted) == (56, 31_204, 410, None)
    assert (row.prompt_s, row.generation_s) == (0.25, 8.2)
    assert (row.duration_s, row.first_byte_s, row.ttft_s) == (13.0, 4.5, 4.75)
    assert (row.start, row.is_stream, row.status, row.error) == ("woken", True, 200, "")
    assert row.phases == {"drain": 0.2, "evict": 0.9, "wake": 3.0, "prefill": 0.4}
    assert its_swap is not None
    assert (its_swap.id, its_swap.reason, its_swap.swap_s) == (3, "requested", 3.9)
    assert its_swap.departures == [Departure("b", "sleep")]


async def test_a_request_that_waited_for_nothing_has_no_swap(tmp_path: Path) -> None:
    """And what its server doesn't say of tokens isn't there."""
    async with opened(tmp_path) as store:
        Activity(store, rows=lambda: 0, days=0).take(batch(request()))
        await has(store, 1)
        found = await History(store).request(1)
        assert await History(store).request(2) is None

    assert found is not None
    row, swap = found
    assert swap is None
    assert (row.start, row.computed, row.cached, row.generated) == ("awake", None, None, None)


async def test_moves_are_kept_with_their_reasons(tmp_path: Path) -> None:
    """Why, for whom, how long, what moved."""
    gone = move(
        "b",
        "sleep",
        cause=Cause(Why.ROOM, "a"),
        driver="pageout",
        paused=2,
        moved_bytes={"swap": 2048},
    )
    idle = move("c", "stop", cause=Cause(Why.TTL, idle_s=300.4), result="failed", error="oh")
    async with opened(tmp_path) as store:
        Activity(store, rows=lambda: 0, days=0).take(batch(gone, idle))
        await has(store, 2, "moves")
        rows, total = await History(store).moves(Query())

    assert total == 2
    assert [(row.model, row.reason, row.result) for row in rows] == [
        ("c", "ttl 300 s", "failed"),
        ("b", "evicted by a", "ok"),
    ]
    assert (rows[1].driver, rows[1].paused, rows[1].bytes) == ("pageout", 2, {"swap": 2048})
    assert (rows[1].swap_s, rows[1].duration_s, rows[1].phases) == (None, 3.0, {})


async def test_the_oldest_rows_make_room(tmp_path: Path) -> None:
    """Of requests and moves, each for themselves; ids go on counting."""
    async with opened(tmp_path) as store:
        activity = Activity(store, rows=lambda: 3, days=0)
        for number in range(30):
            activity.take(batch(request(at=NOON + number)))
        activity.take(batch(*(move("a", "stop") for _ in range(5))))
        await has(store, 3)
        await has(store, 3, "moves")
        rows, _ = await History(store).requests(Query())

    assert [row.id for row in rows] == [30, 29, 28]


async def test_old_rows_are_dropped(tmp_path: Path) -> None:
    """Those that are older than so many days, also when they are of an earlier proxy."""
    async with opened(tmp_path) as store:
        Activity(store, rows=lambda: 0, days=0).take(
            batch(*(request(at=NOON - days * DAY_S) for days in (40, 31, 29)))
        )
        await has(store, 3)
    async with opened(tmp_path) as store:
        Activity(store, rows=lambda: 0, days=30).take(batch(request()))
        await has(store, 2)


@pytest.mark.parametrize(
    ("days_later", "left"),
    [
        pytest.param(-365, 3, id="a clock that went back"),
        pytest.param(365, 2, id="a clock that went on, or months without a proxy"),
        pytest.param(20, 2, id="three weeks without a proxy"),
        pytest.param(10, 3, id="a week and a half"),
    ],
)
async def test_a_clock_that_jumps_costs_half_of_the_days(
    tmp_path: Path, days_later: float, left: int
) -> None:
    """What is younger stays, and goes in time."""
    later = NOON + days_later * DAY_S
    async with opened(tmp_path) as store:
        Activity(store, rows=lambda: 0, days=0).take(
            batch(request(at=NOON - 19 * DAY_S), request(at=NOON))
        )
        await has(store, 2)
        activity = Activity(store, rows=lambda: 0, days=30)
        activity.take(batch(request(at=later)))
        await has(store, left)
    if days_later > 30:
        async with opened(tmp_path) as store:
            Activity(store, rows=lambda: 0, days=30).take(batch(request(at=later + 16 * DAY_S)))
            await has(store, 2)


async def test_a_broken_row_of_somebody_elses_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Text that is none is lost alone."""
    async with opened(tmp_path) as store:
        Activity(store, rows=lambda: 0, days=0).take(batch(request("\udcff"), request("b")))
        await has(store, 1)

    assert "a row can't be kept" in caplog.text


async def test_a_flood_is_kept_in_part(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As many a second as a disk should take, which is said once; afterwards all are kept again."""
    async with opened(tmp_path) as store:
        activity = Activity(store, rows=lambda: 0, days=0)
        for _ in range(3):  # all within the same second
            activity.take(batch(*[request() for _ in range(FLOOD_PER_S)]))
        await has(store, FLOOD_PER_S)
        activity.take(batch(*[request(ended_at=13.0) for _ in range(10)]))
        await has(store, FLOOD_PER_S + 10)

    assert len([r for r in caplog.records if "activity keeps a part" in r.message]) == 1


async def test_a_flood_in_waves_is_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line of the log each second would be a flood of its own; a later one is news again."""
    async with opened(tmp_path) as store:
        activity = Activity(store, rows=lambda: 0, days=0)
        for ended_at in (12.0, 13.5, 15.0, 70.0, 131.0):
            activity.take(batch(*[request(ended_at=ended_at) for _ in range(FLOOD_PER_S + 1)]))
            activity.take(batch(request(ended_at=ended_at + 1)))

    assert len([r for r in caplog.records if "activity keeps a part" in r.message]) == 2
