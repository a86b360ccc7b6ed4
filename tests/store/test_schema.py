"""Tables are brought up to date, once, and never down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from llmsnap.store.schema import Schema
from tests.store.conftest import INSERT, NOTES, holds, outside, running

NEWER = replace(
    NOTES,
    migrations=(
        *NOTES.migrations,
        ("ALTER TABLE notes ADD COLUMN kind TEXT NOT NULL DEFAULT 'plain'",),
    ),
)
OTHER = Schema("other", (("CREATE TABLE other (x)",),))


async def test_older_tables_are_brought_up_to_date(path: Path) -> None:
    """With the rows that are in them; each migration is run once."""
    async with running(path) as store:
        store.write(INSERT, ("old",))
    for _ in range(2):
        async with running(path, NEWER) as store:
            await holds(store, "old")

    assert outside(path, "SELECT text, kind FROM notes") == [("old", "plain")]
    assert outside(path, "SELECT * FROM schema_versions") == [("notes", 2)]


async def test_each_part_has_its_own_version(path: Path) -> None:
    """One that is new doesn't make the others run again."""
    async with running(path, NEWER) as store:
        await store.opened()
    async with running(path, NEWER, OTHER) as store:
        await store.opened()

    versions = outside(path, "SELECT name, version FROM schema_versions ORDER BY name")
    assert versions == [("notes", 2), ("other", 1)]


async def test_what_a_newer_llmsnap_wrote_is_left_alone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows are kept in memory meanwhile, and the newer one finds its file as it was."""
    async with running(path, NEWER) as store:
        store.write(INSERT, ("theirs",))
    async with running(path) as store:
        store.write(INSERT, ("ours",))
        await holds(store, "ours")
        assert store.path is None

    assert "a newer llmsnap has written it" in caplog.text
    assert outside(path, "SELECT text, kind FROM notes") == [("theirs", "plain")]


async def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    """All of them or none, so that the next llmsnap can try again."""
    async with running(path) as store:
        await store.opened()
    wrong = replace(NEWER, migrations=(*NEWER.migrations, ("ALTER TABLE nowhere ADD COLUMN x",)))
    async with running(path, wrong, OTHER) as store:
        await store.opened()
        assert store.path is None

    assert outside(path, "SELECT * FROM schema_versions") == [("notes", 1)]
    assert len(outside(path, "PRAGMA table_info(notes)")) == 2
