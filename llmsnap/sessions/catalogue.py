"""Which conversations are saved, and what restores were worth: an index beside the files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from llmsnap.errors import StoreFailed
from llmsnap.sessions.chain import MARK_BYTES
from llmsnap.sessions.files import Kept
from llmsnap.sessions.identity import Facts
from llmsnap.store.schema import Schema

logger = logging.getLogger(__name__)

SCHEMA: Final = Schema(
    "sessions",
    (
        (
            "CREATE TABLE sessions (name TEXT PRIMARY KEY, model TEXT NOT NULL, "
            "facts TEXT NOT NULL, engine TEXT NOT NULL, scope TEXT NOT NULL, "
            "session TEXT NOT NULL, marks BLOB NOT NULL, length INTEGER NOT NULL, "
            "tokens INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, size INTEGER NOT NULL, "
            "checksum TEXT NOT NULL, made REAL NOT NULL, used REAL NOT NULL)",
            "CREATE TABLE session_verdicts (key TEXT PRIMARY KEY, verdict TEXT NOT NULL, "
            "strikes INTEGER NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL)",
        ),
        (
            "CREATE TABLE session_calendar (id INTEGER PRIMARY KEY CHECK (id = 0), "
            "wall REAL NOT NULL, counted REAL NOT NULL)",
        ),
    ),
)
_WRITTEN_S: Final = 2.0
_KEEP: Final = "INSERT OR REPLACE INTO sessions VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_USE: Final = "UPDATE sessions SET used = ? WHERE name = ?"
_DROP: Final = "DELETE FROM sessions WHERE name = ?"
_ALL: Final = "SELECT * FROM sessions ORDER BY used"
_JUDGE: Final = "INSERT OR REPLACE INTO session_verdicts VALUES (?,?,?,?,?)"
_JUDGED: Final = "SELECT * FROM session_verdicts"
_REACHED: Final = "INSERT OR REPLACE INTO session_calendar VALUES (0, ?, ?)"
_REACHED_BEFORE: Final = (
    "SELECT wall, counted FROM session_calendar "
    "UNION ALL SELECT used, used FROM (SELECT max(used) AS used FROM sessions) WHERE used > 0"
)
"""An index from before there was a calendar has been counted to its newest row, at least."""


class Keeps(Protocol):
    """What is needed of the database."""

    @property
    def path(self) -> Path | None: ...

    def write(
        self, sql: str, values: Sequence[Any], told: Callable[[int], None] | None = None
    ) -> None: ...

    def read(self, sql: str, values: Sequence[Any] = ()) -> Awaitable[list[tuple[Any, ...]]]: ...

    async def opened(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One saved conversation."""

    name: str
    """Of its file."""
    model: str
    facts: Facts
    engine: str
    scope: str
    """Whose it is: a hash of the API key; empty: there are no keys."""
    session: str
    """What its client calls it, hashed; empty: nothing."""
    marks: tuple[bytes, ...]
    length: int
    """Characters that were asked."""
    tokens: int
    prompt_tokens: int
    """Of `tokens`, those that were asked; the others are its last answer."""
    kept: Kept
    made: float
    used: float
    """Both as the calendar has counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a restore was worth, for one identity or one pair of builds."""

    word: str
    """`used`, `useless` or `refused`."""
    strikes: int = 0
    """Useless restores in a row."""
    reason: str = ""
    at: float = 0.0
    """As the calendar has counted."""


class Catalogue:
    """The index, in memory and in the database, where other proxies find it, too."""

    def __init__(self, store: Keeps) -> None:
        self._store = store
        self._saved: dict[str, dict[str, Saved]] = {}
        """By model and name."""
        self._dropped: set[str] = set()
        """Names whose rows may still be there."""
        self._verdicts: dict[str, Verdict] = {}

    @property
    def is_lasting(self) -> bool:
        """Whether it is in a file: else it can't be told whose a file is."""
        return self._store.path is not None

    async def refresh(self) -> None:
        """Take in what other proxies have written since."""
        await self._store.opened()
        try:
            rows, judged = await self._store.read(_ALL), await self._store.read(_JUDGED)
        except StoreFailed as error:
            logger.warning("saved conversations aren't known: %s", error)
            return
        known = {saved.name for saved in self.all()} | self._dropped
        self._dropped &= {row[0] for row in rows}
        news = [row for row in rows if row[0] not in known]
        for saved in await asyncio.to_thread(_understood, news):  # 10,000 take a quarter second
            self._saved.setdefault(saved.model, {}).setdefault(saved.name, saved)
        for key, word, strikes, reason, at in judged:
            self._verdicts.setdefault(str(key), Verdict(word, strikes, reason, at))

    async def reached(self) -> tuple[float, float] | None:
        """Return what the wall clock said last, and what the calendar had counted to then.

        Raises StoreFailed.
        """
        await self._store.opened()
        rows = await self._store.read(_REACHED_BEFORE)
        return (rows[0][0], rows[0][1]) if rows else None

    def reach(self, wall: float, counted: float) -> None:
        """Keep what the wall clock says, and what the calendar has counted to."""
        self._store.write(_REACHED, (wall, counted))

    def all(self) -> list[Saved]:
        """Return everything, the least recently used first."""
        every = (saved for of_one in self._saved.values() for saved in of_one.values())
        return sorted(every, key=lambda saved: saved.used)

    def has(self, model: str) -> bool:
        """Whether anything is saved of `model`."""
        return model in self._saved

    def of(self, model: str) -> list[Saved]:
        """Return what is saved of `model`."""
        return [*self._saved.get(model, {}).values()]

    async def add(self, saved: Saved) -> None:
        """Note that `saved` is there; return once that is written, or can't be for a while."""
        self._saved.setdefault(saved.model, {})[saved.name] = saved
        written = asyncio.Event()
        self._store.write(_KEEP, _row(saved), lambda _: written.set())
        with suppress(TimeoutError):
            async with asyncio.timeout(_WRITTEN_S):
                await written.wait()

    def use(self, saved: Saved, now: float) -> None:
        """Note that `saved` was wanted."""
        if saved.name in (of_one := self._saved.get(saved.model, {})):
            of_one[saved.name] = replace(saved, used=now)
            self._store.write(_USE, (now, saved.name))

    def drop(self, names: Iterable[str]) -> None:
        """Forget these."""
        for name in names:
            for of_one in self._saved.values():
                of_one.pop(name, None)
            self._dropped.add(name)
            self._store.write(_DROP, (name,))
        self._saved = {model: of_one for model, of_one in self._saved.items() if of_one}

    def verdict(self, key: str) -> Verdict | None:
        """Return what is known of restores of `key`."""
        return self._verdicts.get(key)

    def judge(self, key: str, verdict: Verdict) -> None:
        """Keep `verdict`."""
        self._verdicts[key] = verdict
        row = (key, verdict.word, verdict.strikes, verdict.reason, verdict.at)
        self._store.write(_JUDGE, row)


def _row(saved: Saved) -> tuple[Any, ...]:
    return (
        saved.name,
        saved.model,
        msgspec.json.encode(saved.facts).decode(),
        saved.engine,
        saved.scope,
        saved.session,
        b"".join(saved.marks),
        saved.length,
        saved.tokens,
        saved.prompt_tokens,
        saved.kept.size,
        saved.kept.checksum,
        saved.made,
        saved.used,
    )


def _understood(rows: Iterable[tuple[Any, ...]]) -> list[Saved]:
    return [saved for row in rows if (saved := _saved(row)) is not None]


def _saved(row: tuple[Any, ...]) -> Saved | None:
    name, model, facts, engine, scope, session, marks, length, tokens, asked, size, sum_, *at = row
    try:
        told = msgspec.json.decode(facts, type=dict[str, str])
    except msgspec.DecodeError:
        return None
    split = (marks[start : start + MARK_BYTES] for start in range(0, len(marks), MARK_BYTES))
    return Saved(
        name=name,
        model=model,
        facts=told,
        engine=engine,
        scope=scope,
        session=session,
        marks=tuple(split),
        length=length,
        tokens=tokens,
        prompt_tokens=asked,
        kept=Kept(size, sum_),
        made=at[0],
        used=at[1],
    )
