"""Finds rows of activity again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from llmsnap.telemetry.activity import Ask, Keeps
from llmsnap.telemetry.rows import (
    MOVE_COLUMNS,
    REQUEST_COLUMNS,
    MoveRow,
    RequestRow,
    move_row,
    request_row,
)
from llmsnap.telemetry.stats import Histogram, histogram

_SPEEDS: Final = {
    "prompt_speed": "CASE WHEN prompt_s > 0 THEN computed / prompt_s END",
    "gen_speed": "CASE WHEN generation_s > 0 THEN generated / generation_s END",
}
SORTS: Final = {
    "id": "id",
    "time": "at",
    "model": "model",
    "req_path": "path",
    "resp_status_code": "status",
    "resp_content_type": "kind",
    "cached": "coalesce(cached, -1)",
    "prompt": "coalesce(computed, 0)",
    "generated": "coalesce(generated, 0)",
    "drafted": "coalesce(drafted, -1)",
    "duration": "duration_s",
    **{name: f"coalesce({speed}, -1)" for name, speed in _SPEEDS.items()},
}
"""What requests may be sorted by, in llama-swap's words."""
MOVE_SORTS: Final = ("id", "time", "model", "duration")
"""What moves may be sorted by: some of `SORTS`."""
_SUMS: Final = (
    "SELECT count(*), coalesce(sum(computed), 0), coalesce(sum(generated), 0), "
    "coalesce(sum(cached), 0) FROM requests"
)
_MOST_SPEEDS: Final = 10_000
"""Of the newest rows; more would change no histogram."""


class Query(Struct, frozen=True, kw_only=True):
    """Which rows are wanted. Moments are Unix seconds."""

    models: tuple[str, ...] = ()
    start: float | None = None
    end: float | None = None
    min_id: int | None = None
    max_id: int | None = None
    kinds: tuple[str, ...] = ()
    """Of moves: wake, start, sleep, stop."""
    limit: int = 25
    page: int = 1
    sort: str = "id"
    """A key of `SORTS`."""
    ascending: bool = False

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition, with its values."""
        terms: list[str] = []
        values: list[Any] = []
        for column, wanted in (("model", self.models), ("kind", self.kinds)):
            if wanted:
                terms.append(f"{column} IN ({', '.join('?' * len(wanted))})")
                values += wanted
        bounds = (
            ("at >= ?", self.start),
            ("at <= ?", self.end),
            ("id >= ?", self.min_id),
            ("id <= ?", self.max_id),
        )
        for term, bound in bounds:
            if bound is not None:
                terms.append(term)
                values.append(bound)
        return (f" WHERE {' AND '.join(terms)}" if terms else ""), values

    def order(self) -> str:
        """Return the order, and which part of the rows it is."""
        way = "ASC" if self.ascending else "DESC"
        return f" ORDER BY {SORTS[self.sort]} {way}, id {way} LIMIT ? OFFSET ?"


class Stats(Struct, frozen=True, kw_only=True):
    """What was done so far, as far as rows are kept; in llama-swap's words."""

    total_requests: int
    total_input_tokens: int
    total_output_tokens: int
    total_cache_tokens: int
    prompt_histogram: Histogram | None
    gen_histogram: Histogram | None


class History:
    """Answers questions about rows. All of its methods raise StoreFailed."""

    def __init__(self, store: Keeps) -> None:
        self._store = store

    async def requests(self, query: Query) -> tuple[list[RequestRow], int]:
        """Return the requests on the page, and how many there are on all pages."""
        async with self._store.snapshot() as ask:
            rows, total = await _page(ask, "requests", REQUEST_COLUMNS, query)
        return [request_row(row) for row in rows], total

    async def told(self, query: Query) -> tuple[list[tuple[RequestRow, MoveRow | None]], int]:
        """Return the same, each request with the way up that it waited for."""
        async with self._store.snapshot() as ask:
            rows, total = await _page(ask, "requests", REQUEST_COLUMNS, query)
            requests = [request_row(row) for row in rows]
            moves = await _moves_of(ask, requests)
        return [(row, moves.get((row.model, row.swap_at))) for row in requests], total

    async def moves(self, query: Query) -> tuple[list[MoveRow], int]:
        """Return the moves on the page, and how many there are on all pages."""
        async with self._store.snapshot() as ask:
            rows, total = await _page(ask, "moves", MOVE_COLUMNS, query)
        return [move_row(row) for row in rows], total

    async def request(self, id_: int) -> tuple[RequestRow, MoveRow | None] | None:
        """Return a request and the way up that it waited for; None: there is no such row."""
        async with self._store.snapshot() as ask:
            rows = await ask(f"{_select('requests', REQUEST_COLUMNS)} WHERE id = ?", (id_,))
            if not rows:
                return None
            row = request_row(rows[0])
            moves = await _moves_of(ask, [row])
        return row, moves.get((row.model, row.swap_at))

    async def stats(self, models: Sequence[str] = ()) -> Stats:
        """Return sums and speeds, of `models` or of all."""
        where, values = Query(models=tuple(models)).where()
        async with self._store.snapshot() as ask:
            ((count, computed, generated, cached),) = await ask(_SUMS + where, values)
            speeds = [
                await ask(
                    f"SELECT {speed} FROM requests{where} ORDER BY id DESC LIMIT ?",
                    [*values, _MOST_SPEEDS],
                )
                for speed in _SPEEDS.values()
            ]
        prompt, generation = (
            histogram(speed for (speed,) in column if speed is not None) for column in speeds
        )
        return Stats(
            total_requests=count,
            total_input_tokens=computed,
            total_output_tokens=generated,
            total_cache_tokens=cached,
            prompt_histogram=prompt,
            gen_histogram=generation,
        )


async def _page(
    ask: Ask, table: str, columns: tuple[str, ...], query: Query
) -> tuple[list[tuple[Any, ...]], int]:
    where, values = query.where()
    ((total,),) = await ask(f"SELECT count(*) FROM {table}{where}", values)
    part = [query.limit, (query.page - 1) * query.limit]
    rows = await ask(f"{_select(table, columns)}{where}{query.order()}", [*values, *part])
    return rows, total


async def _moves_of(
    ask: Ask, requests: Sequence[RequestRow]
) -> dict[tuple[str, float | None], MoveRow]:
    """Return the ways up that `requests` waited for, by model and beginning."""
    wanted = {(row.model, row.swap_at) for row in requests if row.swap_at is not None}
    if not wanted:
        return {}
    pairs = ", ".join(["(?, ?)"] * len(wanted))
    sql = f"{_select('moves', MOVE_COLUMNS)} WHERE (model, at) IN (VALUES {pairs})"
    rows = await ask(sql, [value for pair in wanted for value in pair])
    return {(move.model, move.at): move for move in map(move_row, rows)}


def _select(table: str, columns: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(columns)} FROM {table}"
