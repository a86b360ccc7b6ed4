"""A store with one table, and what is needed to look at its file from outside."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest

from llmsnap.store.schema import Schema
from llmsnap.store.store import Row, Store
from tests.helpers.database import running_store
from tests.helpers.waiting import eventually

INSERT = "INSERT INTO notes (text) VALUES (?)"
NOTES = Schema(
    "notes", (("CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL)",),)
)

Opens = Callable[..., AbstractAsyncContextManager[Store]]


def running(
    path: Path, *schemas: Schema, limit: int = 10_000
) -> AbstractAsyncContextManager[Store]:
    """A store of notes that runs, and is closed at the end of the block."""
    return running_store(path, *(schemas or (NOTES,)), limit=limit)


async def texts(store: Store) -> list[str]:
    """What the notes say, in order."""
    return [text for (text,) in await store.read("SELECT text FROM notes ORDER BY id")]


async def holds(store: Store, *expected: str) -> None:
    """Wait until these are the notes."""

    async def is_so() -> bool:
        return await texts(store) == list(expected)

    await eventually(is_so)


def outside(path: Path, sql: str = "SELECT text FROM notes ORDER BY id") -> list[Row]:
    """What another process reads in the file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database is to be; not even its folder is there."""
    return tmp_path / "state" / "llmsnap.db"
