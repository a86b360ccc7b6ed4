"""The tables of each part of llmsnap, and the way from an older version of them to the present."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiosqlite import Connection

Statements = tuple[str, ...]

_VERSIONS: Final = (
    "CREATE TABLE IF NOT EXISTS schema_versions (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
)


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one part. The n-th migration leads from version n to n + 1."""

    name: str
    migrations: tuple[Statements, ...]

    @property
    def version(self) -> int:
        """The version that this llmsnap knows."""
        return len(self.migrations)


class NewerSchema(Exception):
    """A newer llmsnap has written the file; what it means by its tables isn't known here."""


@asynccontextmanager
async def transaction(connection: Connection) -> AsyncIterator[None]:
    """Have what the block writes written whole, or not at all."""
    await connection.execute("BEGIN IMMEDIATE")
    done = False
    try:
        yield
        await connection.execute("COMMIT")
        done = True
    finally:
        if not done:
            with suppress(sqlite3.Error):  # SQLite has rolled back by itself, or the file is gone
                await connection.execute("ROLLBACK")


async def migrate(connection: Connection, schemas: Iterable[Schema]) -> None:
    """Bring all tables to their present version, or leave them as they are and raise.

    Raises NewerSchema, and what SQLite raises.
    """
    async with transaction(connection):
        await connection.execute(_VERSIONS)
        rows = await connection.execute_fetchall("SELECT name, version FROM schema_versions")
        versions = {str(name): int(version) for name, version in rows}
        for schema in schemas:
            await _migrate(connection, schema, versions)


async def _migrate(connection: Connection, schema: Schema, versions: Mapping[str, int]) -> None:
    found = versions.get(schema.name, 0)
    if found > schema.version:
        raise NewerSchema(f"{schema.name} is of version {found}, known is {schema.version}")
    for statement in (line for step in schema.migrations[found:] for line in step):
        await connection.execute(statement)
    if found < schema.version:
        await connection.execute(
            "INSERT INTO schema_versions VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET version = excluded.version",
            (schema.name, schema.version),
        )
