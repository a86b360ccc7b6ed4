"""Keeps a row a request and a row a move of a model, as many and as long as is wanted."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from math import inf
from typing import Any, Final, Protocol

from llmsnap.telemetry.captures import Captures
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.recorder import FLOOD_PER_S, Batch
from llmsnap.telemetry.rows import INSERT_MOVE, INSERT_REQUEST, move_values, request_values

_DAY_S: Final = 86400.0
_PRUNED_EVERY: Final = 500
"""Rows that come between two looks at what is too old."""
_CALM_S: Final = 60.0
"""How long a flood must be over before the next one is news."""
_BY_COUNT: Final = "DELETE FROM {} WHERE id <= (SELECT max(id) FROM {}) - ?"
# Rows come in order of time, more or less: each search ends at the first one that is young enough.
# A gap behind those that are too old may be a clock that was set, and counts half of the days.
_BY_AGE: Final = (
    "WITH newest AS (SELECT at FROM {table} ORDER BY id DESC LIMIT 1), "
    "young AS (SELECT id, at FROM {table} WHERE at >= (SELECT at FROM newest) - ?1 "
    "ORDER BY id LIMIT 1), "
    "old AS (SELECT at FROM {table} WHERE id < (SELECT id FROM young) ORDER BY id DESC LIMIT 1) "
    "DELETE FROM {table} WHERE id < (SELECT id FROM {table} WHERE at >= "
    "(SELECT old.at + min(young.at - old.at, ?1 / 2) + newest.at - young.at - ?1 "
    "FROM old, young, newest) ORDER BY id LIMIT 1)"
)
_TABLES: Final = ("requests", "moves")

logger = logging.getLogger(__name__)

Ask = Callable[[str, Sequence[Any]], Awaitable[list[tuple[Any, ...]]]]


class Keeps(Protocol):
    """What is needed of the store."""

    def write(
        self, sql: str, values: Sequence[Any], told: Callable[[int], None] | None = None
    ) -> None: ...

    def snapshot(self) -> AbstractAsyncContextManager[Ask]: ...


class Activity:
    """Writes what has happened; `Recorder` hands it the batches.

    At most `rows()` rows are kept of requests, and as many of moves, for at most `days`; 0: without
    end. What requests brought along to be kept whole goes into `captures`. `announce` is told the
    id of each new request.
    """

    def __init__(
        self,
        store: Keeps,
        *,
        rows: Callable[[], int],
        days: float,
        captures: Captures | None = None,
        announce: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._rows = rows
        self._days = days
        self._captures = captures
        self._announce = announce
        self._allowance: float = FLOOD_PER_S
        self._earned_at = 0.0
        self._behind_at = -inf
        """When requests came too fast last."""
        self._since_pruned = _PRUNED_EVERY
        """The rows of earlier times are looked at with the first batch, when the file is open."""

    def take(self, batch: Batch) -> None:
        """Keep what has ended."""
        for move in batch.moves:
            self._store.write(INSERT_MOVE, move_values(move))
        kept = self._affordable(batch.requests)
        for record in kept:
            told = self._announce if record.capture is None else self._keeping(record)
            self._store.write(INSERT_REQUEST, request_values(record), told)
        self._since_pruned += len(kept) + len(batch.moves)
        if self._since_pruned >= min(_PRUNED_EVERY, self._rows() or _PRUNED_EVERY):
            self._prune()

    def _keeping(self, record: RequestRecord) -> Callable[[int], None]:
        """Return what keeps a request whole, once it has an id."""
        assert record.capture is not None
        kept = record.capture.kept(failed=bool(record.error) or record.status != HTTPStatus.OK)
        record.capture = None

        def told(id_: int) -> None:
            if kept is not None and self._captures is not None:
                self._captures.keep(id_, kept)
            self._announce(id_)

        return told

    def _affordable(self, records: list[RequestRecord]) -> list[RequestRecord]:
        """Return those of `records` that are kept, when they come too fast the first ones."""
        if not records:
            return records
        now = records[-1].ended_at
        self._allowance = min(FLOOD_PER_S, self._allowance + (now - self._earned_at) * FLOOD_PER_S)
        self._earned_at = now
        kept = records[: max(0, int(self._allowance))]
        self._allowance -= len(kept)
        if len(kept) < len(records):
            self._note_flood(now)
        return kept

    def _note_flood(self, now: float) -> None:
        """Say it once, for as long as it comes in waves, too."""
        if now - self._behind_at > _CALM_S:
            logger.warning(
                "more than %d requests a second: activity keeps a part of them, metrics count all",
                FLOOD_PER_S,
            )
        self._behind_at = now

    def _prune(self) -> None:
        self._since_pruned = 0
        rows = self._rows()
        for table in _TABLES:
            if rows:
                self._store.write(_BY_COUNT.format(table, table), (rows,))
            if self._days:
                self._store.write(_BY_AGE.format(table=table), (self._days * _DAY_S,))
