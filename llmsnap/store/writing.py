"""How a batch of rows is written: whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from llmsnap.store.database import Database
from llmsnap.store.schema import transaction

Value = str | int | float | bytes | None
Told = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Write:
    """One statement and its values; `told` gets the id of the row that it inserted."""

    sql: str
    values: Sequence[Value]
    told: Told | None = None


async def commit(database: Database, batch: Sequence[Write]) -> None:
    """Write `batch`, then tell the ids. Raises what SQLite raises."""
    news: list[tuple[Told, int]] = []
    async with transaction(database.writer):
        for sql, group in groupby(batch, key=lambda write: write.sql):
            writes = list(group)
            await database.writer.executemany(sql, [write.values for write in writes])
            if any(write.told for write in writes):
                news += await _ids(database, writes)
    for told, row in news:
        told(row)


async def _ids(database: Database, writes: Sequence[Write]) -> list[tuple[Told, int]]:
    """Return who is to be told which id; within a transaction they follow each other."""
    ((last,),) = await database.writer.execute_fetchall("SELECT last_insert_rowid()")
    first = int(last) - len(writes) + 1
    return [(write.told, row) for row, write in enumerate(writes, first) if write.told]
