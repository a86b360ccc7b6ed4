"""The database as the rest of llmsnap sees it: writes that never wait, reads that see one state."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from llmsnap.errors import StoreFailed
from llmsnap.store.database import FAULTS, Database, Trouble, open_database, open_memory, trouble
from llmsnap.store.schema import Schema
from llmsnap.store.writing import Told, Value, Write, commit

logger = logging.getLogger(__name__)

Row = tuple[Any, ...]
Ask = Callable[[str, Sequence[Value]], Awaitable[list[Row]]]
"""Answers one query."""

_BATCH: Final = 500
_BUSY: Final = 50
"""Rows of one batch after which the next one may wait longer: each has its price."""
_BUSY_LINGERS: Final = 5
"""How many times as long."""
_FIRST_PAUSE_S: Final = 1.0
_MOST_PAUSE_S: Final = 30.0
_LAST_WRITES_S: Final = 5.0


class Store:
    """Keeps rows in the SQLite file at `path`; in memory where that can't be.

    `run` is its one writer: it opens the file, writes what was queued in batches, and closes it.
    `linger_s` is how long a first row waits for others, `limit` how many may wait at most.
    """

    def __init__(
        self, path: Path, schemas: Sequence[Schema], *, linger_s: float = 0.2, limit: int = 10_000
    ) -> None:
        self._path = path
        self._schemas = schemas
        self._linger_s = linger_s
        self._limit = limit
        self._queue: deque[Write] = deque()
        self._pending = 0
        """Rows that are queued or being written."""
        self._dropped = 0
        self._is_busy = False
        """Whether many rows come at a time."""
        self._database: Database | None = None
        self._broken = ""
        """What is wrong with the file, found since it was opened."""
        self._replaced = False
        self._running = False
        self._turn = asyncio.Lock()
        """Whose turn it is to read."""
        self._news = asyncio.Event()
        self._opened = asyncio.Event()
        self._closing = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def path(self) -> Path | None:
        """The file that is written; None: memory, or not open."""
        return self._database.path if self._database else None

    # ---- for everybody -------------------------------------------------------------------------

    def write(self, sql: str, values: Sequence[Value], told: Told | None = None) -> None:
        """Queue one statement; never waits and never fails.

        `told` is called with the id of the row once it is written: for plain inserts.
        """
        if self._pending >= self._limit:
            self._dropped += 1
            if self._dropped == 1:
                logger.warning("%s isn't written fast enough; the newest rows are lost", self._path)
            return
        self._queue.append(Write(sql, values, told))
        self._pending += 1
        self._news.set()

    async def opened(self) -> None:
        """Return once reads are answered."""
        await self._opened.wait()

    async def read(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return the rows of one query. Raises StoreFailed."""
        async with self.snapshot() as ask:
            return await ask(sql, values)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Ask]:
        """Return what answers queries, all from one state of the database. Raises StoreFailed."""
        await self._opened.wait()
        async with self._turn:
            if self._database is None:
                raise StoreFailed("the database is closed, as llmsnap is shutting down")
            ask = partial(self._ask, self._database)
            await ask("BEGIN", ())
            try:
                yield ask
            finally:
                with suppress(StoreFailed):
                    await ask("ROLLBACK", ())

    # ---- the writer ----------------------------------------------------------------------------

    def run(self) -> Coroutine[Any, Any, None]:
        """Write until `aclose` is called, then what is left, and return."""
        # Not within the coroutine: it may be closed before its first step.
        self._running = True
        return self._run()

    async def aclose(self) -> None:
        """Have what is queued written, within a few seconds; return when the file is closed."""
        self._closing.set()
        self._news.set()
        if not self._running:
            self._opened.set()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WRITES_S):
                await self._ended.wait()

    async def _run(self) -> None:
        try:
            self._database = await open_database(self._path, self._schemas)
            self._opened.set()
            while await self._next():
                batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
                self._is_busy = len(batch) > _BUSY
                await self._keep(batch)
                self._done_with(len(batch))
        finally:
            self._opened.set()
            async with self._turn:
                database, self._database = self._database, None
                if database is not None:
                    await database.aclose()
            self._ended.set()

    async def _next(self) -> bool:
        """Wait until there is something to do; return False when that is the end."""
        while not (self._queue or self._broken or self._closing.is_set()):
            self._news.clear()
            await self._news.wait()
        if len(self._queue) < _BATCH:
            await self._pause(self._linger_s * (_BUSY_LINGERS if self._is_busy else 1))
        return bool(self._queue) or not self._closing.is_set()

    def _done_with(self, count: int) -> None:
        self._pending -= count
        if self._dropped and not self._pending:
            logger.warning("%s is up to date again; %d rows were lost", self._path, self._dropped)
            self._dropped = 0

    async def _keep(self, batch: list[Write]) -> None:
        """Write `batch`; while the disk is full or the file locked, try again and again."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                database = await self._sound_database()
                # In memory the readers have the same connection.
                async with self._turn if database.path is None else nullcontext():
                    await commit(database, batch)
                return
            except FAULTS as error:
                if not await self._may_try_again(batch, error, told=pause_s > _FIRST_PAUSE_S):
                    return
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    async def _may_try_again(self, batch: list[Write], error: Exception, *, told: bool) -> bool:
        """Say whether `batch`, which met `error`, should be written again; else see to it."""
        match trouble(error):
            case Trouble.OURS if len(batch) > 1:
                for write in batch:
                    await self._keep([write])
                return False
            case Trouble.OURS:
                logger.error("a row can't be kept: %s: %s", batch[0].sql, error, exc_info=error)
                return False
            case Trouble.CORRUPT:
                self._broken = str(error)
                return True
            case _ if self._closing.is_set():
                logger.error(
                    "%s can't be written: %s; %d rows are lost", self._path, error, len(batch)
                )
                return False
        if not told:
            logger.error("%s can't be written: %s; it is tried again", self._path, error)
        return True

    async def _sound_database(self) -> Database:
        """Return the database; open another one when the file is broken, or was deleted."""
        database = self._database
        assert database is not None
        if not self._broken and not await database.is_gone():
            return database
        async with self._turn:
            await database.aclose()
            if self._broken and self._replaced:
                logger.error("%s is broken again; rows are kept in memory from now on", self._path)
                self._database = await open_memory(self._schemas)
            else:
                if not self._broken:
                    logger.warning("%s was deleted or replaced; a new one begins", self._path)
                self._replaced = bool(self._broken)
                self._database = await open_database(self._path, self._schemas, broken=self._broken)
            self._broken = ""
        return self._database

    async def _pause(self, seconds: float) -> None:
        """Let time pass, less when the end has come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _ask(self, database: Database, sql: str, values: Sequence[Value]) -> list[Row]:
        try:
            rows = await database.reader.execute_fetchall(sql, values)
        except FAULTS as error:
            if trouble(error) is Trouble.CORRUPT:
                self._broken = str(error)
                self._news.set()
            raise StoreFailed(f"the database can't be read: {error}") from error
        return [tuple(row) for row in rows]
