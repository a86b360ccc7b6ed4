"""How a batch of rows is written: whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from llmsnap.store.database import Database
from llmsnap.store.schema import transaction

_AT_ONCE: Final = 100
"""Rows of one statement: each statement is two fights for the interpreter's lock."""

Value = str | int | float | bytes | None
Told = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Write:
    """One statement and its values.

    `told` gets the id of the row that it inserted: for a plain `INSERT INTO … VALUES (?, …)`.
    """

    sql: str
    values: Sequence[Value]
    told: Told | None = None


async def commit(database: Database, batch: Sequence[Write]) -> None:
    """Write `batch`, then tell the ids. Raises what SQLite raises."""
    news: list[tuple[Told, int]] = []
    async with transaction(database.writer):
        for (sql, is_told), group in groupby(batch, key=_kind):
            writes = list(group)
            if is_told:
                for first in range(0, len(writes), _AT_ONCE):
                    news += await _insert(database, sql, writes[first : first + _AT_ONCE])
            else:
                await database.writer.executemany(sql, [write.values for write in writes])
    for told, row in news:
        told(row)


def _kind(write: Write) -> tuple[str, bool]:
    return write.sql, write.told is not None


async def _insert(database: Database, sql: str, writes: Sequence[Write]) -> list[tuple[Told, int]]:
    """Insert rows in one go; return who is to be told which id: they follow each other."""
    into, _, row = sql.partition(" VALUES ")
    many = f"{into} VALUES {', '.join([row] * len(writes))}"
    values = [value for write in writes for value in write.values]
    inserted = await database.writer.execute(many, values)
    last = inserted.lastrowid
    await inserted.close()
    assert last is not None
    numbered = enumerate(writes, last - len(writes) + 1)
    return [(write.told, id_) for id_, write in numbered if write.told]
