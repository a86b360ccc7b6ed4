"""Opens the database: the file, a new one in place of a broken one, at the last memory."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import dataclass
from enum import Enum, auto
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llmsnap.store.files import Claim, inode, make_private, set_aside
from llmsnap.store.schema import NewerSchema, Schema, migrate

if TYPE_CHECKING:
    from aiosqlite import Connection

logger = logging.getLogger(__name__)

FAULTS: Final = (sqlite3.Error, OverflowError, ValueError)
"""What SQLite raises, and Python with values that SQLite has no type for."""
_BUSY_S: Final = 2.0
"""How long a lock of somebody else's is awaited, in SQLite's thread."""
_PRIMARY: Final = 0xFF
"""SQLite's extended codes carry the primary one in their last byte."""
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_IN_MEMORY: Final = "what is measured and learned is kept in memory only, until you"
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
    }
)


class Trouble(Enum):
    """What an error of SQLite's means."""

    CORRUPT = auto()
    """The file is no database any more."""
    PASSING = auto()
    """It may work later: locked, full, not writable."""
    OURS = auto()
    """The statement or its values are wrong."""


def trouble(error: Exception) -> Trouble:
    """Say what `error` means."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return Trouble.OURS
    if code & _PRIMARY in _CORRUPT:
        return Trouble.CORRUPT
    return Trouble.PASSING if code & _PRIMARY in _PASSING else Trouble.OURS


@dataclass(slots=True)
class Database:
    """Open connections: one that writes, one that reads. In memory both are the same."""

    writer: Connection
    reader: Connection
    path: Path | None = None
    """None: in memory."""
    claim: Claim | None = None
    inode: int | None = None

    async def is_gone(self) -> bool:
        """Whether its file was deleted or replaced, so that what is written is lost."""
        if self.path is None:
            return False
        return await asyncio.to_thread(inode, self.path) != self.inode

    async def aclose(self) -> None:
        """Close what is open."""
        for connection in dict.fromkeys((self.reader, self.writer)):
            await _close(connection)
        if self.claim is not None:
            self.claim.close()


async def open_database(path: Path, schemas: Sequence[Schema], *, broken: str = "") -> Database:
    """Open the file at `path`; where that can't be, say why and return one in memory.

    `broken` says what was found to be wrong with the file, which is then set aside unseen.
    """
    try:
        return await _open_file(path, schemas, broken)
    except NewerSchema as newer:
        reason, remedy = f"a newer llmsnap has written it ({newer})", "use that one again"
    except (OSError, sqlite3.Error) as error:
        reason, remedy = str(error), "see to it and restart"
    logger.error("%s can't be used: %s; %s %s", path, reason, _IN_MEMORY, remedy)
    return await open_memory(schemas)


async def open_memory(schemas: Sequence[Schema]) -> Database:
    """Return a database that ends with the process."""
    async with AsyncExitStack() as opened:
        connection = await _connect(":memory:")
        opened.push_async_callback(_close, connection)
        await migrate(connection, schemas)
        opened.pop_all()
    return Database(connection, connection)


async def _open_file(path: Path, schemas: Sequence[Schema], broken: str) -> Database:
    await asyncio.to_thread(make_private, path)
    with ExitStack() as opened:
        claim = opened.enter_context(closing(Claim.on(path)))
        if not claim.held:
            logger.warning("another llmsnap uses %s, too: both write their rows into it", path)
        if not broken:
            try:
                database = await _connect_both(path, schemas, claim)
            except sqlite3.DatabaseError as error:
                if trouble(error) is not Trouble.CORRUPT:
                    raise
                broken = str(error)
        if broken:
            await _begin_anew(path, claim, broken)
            database = await _connect_both(path, schemas, claim)
        opened.pop_all()
    return database


async def _begin_anew(path: Path, claim: Claim, broken: str) -> None:
    """Make way for a new file. Raises OSError, also when the broken one isn't ours alone."""
    if not claim.held:
        raise OSError(f"it is broken ({broken}), and another llmsnap uses it")
    aside = await asyncio.to_thread(set_aside, path)
    logger.error("%s is broken (%s): it is now %s, and a new one begins", path, broken, aside)
    await asyncio.to_thread(make_private, path)


async def _connect_both(path: Path, schemas: Sequence[Schema], claim: Claim) -> Database:
    async with AsyncExitStack() as opened:
        writer = await _connect(str(path))
        opened.push_async_callback(_close, writer)
        await writer.execute("PRAGMA journal_mode = WAL")
        await writer.execute("PRAGMA synchronous = NORMAL")
        await migrate(writer, schemas)
        reader = await _connect(str(path))
        opened.push_async_callback(_close, reader)
        await reader.execute("PRAGMA query_only = ON")
        number = await asyncio.to_thread(inode, path)
        opened.pop_all()
    return Database(writer, reader, path, claim, number)


async def _connect(name: str) -> Connection:
    # By now the proxy listens; the import takes its time in a thread.
    await asyncio.to_thread(import_module, "aiosqlite")
    import aiosqlite

    return await aiosqlite.connect(name, timeout=_BUSY_S, isolation_level=None)


async def _close(connection: Connection) -> None:
    try:
        await connection.close()
    except sqlite3.Error as error:
        logger.warning("the database wasn't closed in order: %s", error)
