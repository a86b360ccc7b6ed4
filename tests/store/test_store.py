"""Rows go in without waiting and are found again, whatever happens to the file."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from llmsnap.errors import StoreFailed
from llmsnap.store.files import Claim
from llmsnap.store.store import Store
from tests.helpers.waiting import eventually
from tests.store.conftest import INSERT, NOTES, holds, outside, running, texts

Log = pytest.LogCaptureFixture


async def test_rows_outlive_the_proxy(path: Path) -> None:
    """What was queued when it was closed is there for the next one."""
    async with running(path) as store:
        for text in ("one", "two"):
            store.write(INSERT, (text,))
    async with running(path) as store:
        store.write(INSERT, ("three",))
        await holds(store, "one", "two", "three")


async def test_rows_may_be_written_before_it_is_open(path: Path) -> None:
    """They wait in the queue."""
    store = Store(path, (NOTES,), linger_s=0)
    store.write(INSERT, ("early",))
    task = asyncio.ensure_future(store.run())
    await holds(store, "early")
    await store.aclose()
    await task

    assert outside(path) == [("early",)]


async def test_a_store_that_never_ran_closes(path: Path) -> None:
    """The proxy may end before it came to that; readers hear of it."""
    store = Store(path, (NOTES,))
    store.write(INSERT, ("lost",))
    await store.aclose()

    with pytest.raises(StoreFailed, match="shutting down"):
        await store.read("SELECT 1")
    assert not path.exists()


async def test_ids_are_told_as_sqlite_gave_them(path: Path) -> None:
    """To those who asked, among others who didn't, also when another process writes."""
    told: list[tuple[str, int]] = []
    async with running(path) as store:
        await holds(store)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute(INSERT, ("theirs",))
        for text in ("a", "b", "c"):
            write_down = partial(_note, told, text)
            store.write(INSERT, (text,), None if text == "b" else write_down)
        await holds(store, "theirs", "a", "b", "c")
        rows = await store.read("SELECT text, id FROM notes WHERE text IN ('a', 'c')")

    assert sorted(told) == rows


def _note(told: list[tuple[str, int]], text: str, row: int) -> None:
    told.append((text, row))


async def test_a_snapshot_is_of_one_moment(path: Path) -> None:
    """What is written meanwhile isn't in it, and doesn't wait for it."""
    async with running(path) as store:
        store.write(INSERT, ("old",))
        await holds(store, "old")
        async with store.snapshot() as ask:
            assert await ask("SELECT count(*) FROM notes", ()) == [(1,)]
            store.write(INSERT, ("new",))
            await eventually(lambda: len(outside(path)) == 2)
            assert await ask("SELECT count(*) FROM notes", ()) == [(1,)]
        await holds(store, "old", "new")


async def test_readers_cant_write(path: Path) -> None:
    """There is one writer."""
    async with running(path) as store:
        with pytest.raises(StoreFailed, match="readonly"):
            await store.read(INSERT, ("x",))


async def test_the_files_are_for_our_eyes_only(path: Path) -> None:
    """All of them, and the folder."""
    async with running(path) as store:
        store.write(INSERT, ("secret",))
        await holds(store, "secret")
        files = sorted(path.parent.iterdir())

        assert {file.name for file in files} >= {"llmsnap.db", "llmsnap.db-wal"}
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
        assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_row_that_cant_be_kept_takes_no_others_with_it(path: Path, caplog: Log) -> None:
    """Text that is no text, a number beyond 64 bits, a table that isn't there: said in the log."""
    async with running(path) as store:
        store.write(INSERT, ("before",))
        store.write(INSERT, ("\udcff",))
        store.write(INSERT, (1 << 70,))
        store.write("INSERT INTO nowhere VALUES (?)", (1,))
        store.write(INSERT, (None,))
        store.write(INSERT, ("after",))
        await holds(store, "before", "after")

    assert caplog.text.count("a row can't be kept") == 4


# ---- what can be wrong with the file -----------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"this is no database " * 100, b"SQLite format 3\0" + b"x" * 5000]
)
async def test_a_broken_file_is_set_aside(path: Path, caplog: Log, content: bytes) -> None:
    """A new one begins, the old one is kept under another name, and the log says so."""
    path.parent.mkdir()
    path.write_bytes(content)
    path.with_name("llmsnap.db.corrupt-1").touch()
    async with running(path) as store:
        store.write(INSERT, ("new",))
        await holds(store, "new")

    assert path.with_name("llmsnap.db.corrupt-2").read_bytes() == content
    assert outside(path) == [("new",)]
    assert "llmsnap.db.corrupt-2" in caplog.text


@pytest.mark.parametrize("reading", [True, False])
async def test_a_file_that_breaks_while_it_is_used_is_set_aside(
    path: Path, caplog: Log, reading: bool
) -> None:
    """Found by a reader or by the writer; what was queued goes into the new one."""
    async with running(path) as store:
        for _ in range(300):
            store.write(INSERT, ("x" * 500,))
    spoil(path)
    async with running(path) as store:
        if reading:
            with pytest.raises(StoreFailed):
                await texts(store)
            await eventually(path.with_name("llmsnap.db.corrupt-1").exists)
        store.write(INSERT, ("new",))
        store.write("UPDATE notes SET text = text || '!'", ())
        await eventually(path.with_name("llmsnap.db.corrupt-1").exists)
        await holds(store, "new!")

    assert outside(path) == [("new!",)]
    assert "is broken" in caplog.text


def spoil(path: Path) -> None:
    """Overwrite all pages but the first ones."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4 * 4096)
        file.write(os.urandom(size - 4 * 4096))


async def test_a_deleted_file_is_made_again(path: Path, caplog: Log) -> None:
    """Rows don't vanish into a file that has no name any more."""
    async with running(path) as store:
        store.write(INSERT, ("gone",))
        await holds(store, "gone")
        for file in list(path.parent.iterdir()):
            file.unlink()
        store.write(INSERT, ("kept",))
        await holds(store, "kept")

    assert outside(path) == [("kept",)]
    assert "was deleted" in caplog.text


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody holds the file's write lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other


async def test_a_file_that_is_locked_from_the_start(path: Path, caplog: Log) -> None:
    """The proxy doesn't wait for long; rows are kept in memory."""
    path.parent.mkdir()
    with locked(path):
        async with running(path) as store:
            store.write(INSERT, ("here",))
            await holds(store, "here")
            assert store.path is None

    assert "is locked" in caplog.text
    assert "in memory only" in caplog.text


async def test_rows_wait_while_the_file_is_locked(path: Path, caplog: Log) -> None:
    """They are written when it isn't any more; readers see the state before."""
    async with running(path) as store:
        await store.opened()
        with locked(path) as other:
            store.write(INSERT, ("later",))
            await eventually(lambda: "is locked" in caplog.text)
            assert await texts(store) == []
            other.execute("ROLLBACK")
        await holds(store, "later")


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk(path: Path, caplog: Log) -> None:
    """Rows wait, up to a limit; the newest beyond it are lost, which is said and counted."""
    async with running(path, limit=10) as store:
        await holds(store)
        with full_disk(4096):
            for number in range(14):
                store.write(INSERT, (f"{number}{'x' * 20_000}",))
            await eventually(lambda: "can't be written" in caplog.text)
        await eventually(lambda: "4 rows were lost" in caplog.text)
        assert len(await texts(store)) == 10

    assert caplog.text.count("the newest rows are lost") == 1


async def test_a_disk_that_is_full_from_the_start(path: Path, caplog: Log) -> None:
    """Nothing can be made on it: memory."""
    with full_disk(0):
        async with running(path) as store:
            store.write(INSERT, ("here",))
            await holds(store, "here")

    assert "in memory only" in caplog.text


async def test_what_cant_be_written_at_the_end_is_said(path: Path, caplog: Log) -> None:
    """The proxy doesn't wait for a disk to be emptied."""
    async with running(path) as store:
        await holds(store)
        with full_disk(4096):
            store.write(INSERT, ("x" * 20_000,))
            await store.aclose()

    assert "1 rows are lost" in caplog.text


async def test_a_folder_that_cant_be_made(tmp_path: Path, caplog: Log) -> None:
    """A file is in its place."""
    (tmp_path / "state").touch()
    async with running(tmp_path / "state" / "llmsnap.db") as store:
        store.write(INSERT, ("here",))
        await holds(store, "here")

    assert "in memory only" in caplog.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_folder_that_is_read_only(path: Path, caplog: Log) -> None:
    """Somebody else's."""
    path.parent.mkdir(mode=0o500)
    async with running(path) as store:
        store.write(INSERT, ("here",))
        await holds(store, "here")

    assert "in memory only" in caplog.text


async def test_in_memory_readers_and_the_writer_take_turns(tmp_path: Path) -> None:
    """They have one connection there."""
    (tmp_path / "state").touch()
    async with running(tmp_path / "state" / "llmsnap.db") as store:
        for number in range(50):
            store.write(INSERT, (str(number),))
            await texts(store)
        await holds(store, *map(str, range(50)))


# ---- two proxies -------------------------------------------------------------------------------


async def test_two_stores_on_one_file(path: Path, caplog: Log) -> None:
    """All rows of both are there, the file is sound, and the second says that it isn't alone."""
    async with running(path) as first:
        await first.opened()
        assert "another llmsnap" not in caplog.text
        async with running(path) as second:
            for number in range(500):
                (first, second)[number % 2].write(INSERT, (str(number),))
            await eventually(lambda: len(outside(path)) == 500)
            assert sorted(map(int, await texts(first))) == list(range(500))

    assert outside(path, "PRAGMA integrity_check") == [("ok",)]
    assert f"another llmsnap uses {path}" in caplog.text


async def test_a_broken_file_of_another_proxys_is_left_alone(path: Path, caplog: Log) -> None:
    """Who came second doesn't move it away."""
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    with closing(Claim.on(path)):
        async with running(path) as second:
            second.write(INSERT, ("here",))
            await holds(second, "here")
            assert second.path is None

    assert path.read_bytes() == b"no database" * 1000
    assert "another llmsnap uses it" in caplog.text


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.store.conftest import INSERT, running
async def write():
    async with running(Path(sys.argv[1])) as store:
        number = 0
        while True:
            store.write(INSERT, (str(number),))
            number += 1
            await asyncio.sleep(0)
asyncio.run(write())
"""


async def test_a_proxy_that_is_killed_leaves_a_sound_file(path: Path) -> None:
    """In the middle of its writing, several times; the rows that were written are there."""
    for _ in range(3):
        enough = count(path) + 100
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED, str(path), cwd=Path(__file__).parents[2]
        )
        try:
            await eventually(partial(has_more, path, enough))
        finally:
            child.kill()
            await child.wait()

    assert outside(path, "PRAGMA integrity_check") == [("ok",)]


def has_more(path: Path, enough: int) -> bool:
    """Whether the file has more notes than `enough`."""
    return count(path) > enough


def count(path: Path) -> int:
    """How many notes the file has."""
    with suppress(sqlite3.OperationalError):
        return int(outside(path, "SELECT count(*) FROM notes")[0][0]) if path.exists() else 0
    return 0
