"""What each model needs of each device while it is awake: which figure counts, and why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from msgspec import DecodeError, json

from llmsnap.errors import LlmsnapError, StoreFailed
from llmsnap.memory.fitting import Fit
from llmsnap.memory.identity import Command, identity_of
from llmsnap.store.schema import Schema

logger = logging.getLogger(__name__)

Bytes = Mapping[str, int]
"""By device."""

SCHEMA: Final = Schema(
    "footprints",
    (
        (
            "CREATE TABLE footprints (identity TEXT PRIMARY KEY, model TEXT NOT NULL, "
            "bytes TEXT NOT NULL, why TEXT NOT NULL, learned TEXT NOT NULL)",
        ),
    ),
)
_KEEP: Final = (
    "INSERT INTO footprints VALUES (?, ?, ?, ?, ?) ON CONFLICT (identity) DO UPDATE SET "
    "model = excluded.model, bytes = excluded.bytes, why = excluded.why, learned = excluded.learned"
)
_FIND: Final = "SELECT bytes, why FROM footprints WHERE identity = ?"
_TOUCH: Final = "UPDATE footprints SET learned = datetime('now') WHERE identity = ?"
_PRUNE: Final = (
    "DELETE FROM footprints WHERE identity IN "
    "(SELECT identity FROM footprints ORDER BY learned DESC LIMIT -1 OFFSET 1000)"
)
"""By their number, not by their age: it doesn't depend on a clock that may be wrong."""

_NOTICEABLE: Final = 16 * 1024**2
_FINE: Final = 64
"""Growth of less than one part in so many is no news."""
_RAISE: Final = 1.15
"""By how much a figure is raised that turned out to be too small."""


class Source(StrEnum):
    """Where a figure is from, the better ones first."""

    DECLARED = "declared"
    LEARNED = "learned"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a model needs, as far as is known."""

    source: Source
    bytes: Bytes = field(default_factory=dict)
    certain: Bytes = field(default_factory=dict)
    """The part of an estimate that is sure: the weights."""
    why: str = ""
    """In words for people."""


class Estimated(Protocol):
    """What a model's file says that it will need."""

    @property
    def need(self) -> Bytes: ...

    @property
    def certain(self) -> Bytes: ...


class Keeps(Protocol):
    """What is needed of the store."""

    def write(self, sql: str, values: Sequence[Any]) -> None: ...

    def read(self, sql: str, values: Sequence[Any]) -> Awaitable[list[tuple[Any, ...]]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model, as far as its memory goes."""

    command: Command
    declared: Bytes | None = None
    """What the configuration says; None: nothing."""
    pinned: bool = False
    fit: Fit = Fit.NOTHING
    """What its server takes as much of as happens to be free when it starts."""
    guess: Bytes | None = None
    """What the configuration lets one suppose; better than an estimate."""


@dataclass(slots=True)
class _Known:
    """What is known of one model so far."""

    identity: str = ""
    learned: Bytes | None = None
    why: str = ""
    estimate: Estimated | None = None
    whole: bool = False
    """Of a fitted model: nothing was taken from it this time, so that it may be learned from."""


class Footprints:
    """Knows the best figure of each model, and learns.

    `estimate` is asked in a thread and may raise LlmsnapError and OSError; `capacity` gives the
    bytes a device that models may hold. Until `refresh` was called, only what is declared is known.
    """

    def __init__(
        self,
        subjects: Mapping[str, Subject],
        store: Keeps,
        *,
        estimate: Callable[[str], Estimated | None] = lambda _: None,
        capacity: Callable[[], Bytes] = dict,
    ) -> None:
        self._subjects = dict(subjects)
        self._store = store
        self._estimate = estimate
        self._capacity = capacity
        self._known = {model: _Known() for model in subjects}
        store.write(_PRUNE, ())

    def inherit(self, before: Footprints) -> None:
        """Go on with what `before` knows of commands that are the same.

        Models that only `before` has are kept too: their processes may live on for a while.
        """
        for model, subject in before._subjects.items():
            now = self._subjects.setdefault(model, replace(subject, pinned=False))
            if now.command == subject.command:
                self._known[model] = before._known[model]
            else:
                self._known.setdefault(model, _Known())

    def figure(self, model: str) -> Figure:
        """Return what `model` needs: declared, else learned, else estimated."""
        known, declared = self._known[model], self._subjects[model].declared
        if declared is not None:
            return Figure(source=Source.DECLARED, bytes=declared, why="the configuration says so")
        if known.learned is not None:
            return Figure(source=Source.LEARNED, bytes=known.learned, why=known.why)
        if (guess := self._subjects[model].guess) is not None:
            why = "by the configuration, which leaves open where"
            return Figure(source=Source.ESTIMATED, bytes=guess, why=why)
        if (estimate := known.estimate) is not None:
            return Figure(
                source=Source.ESTIMATED,
                bytes=estimate.need,
                certain=estimate.certain,
                why="from its file and its command, until it was seen awake",
            )
        return Figure(
            source=Source.UNKNOWN, why="its file says nothing, and it wasn't seen awake yet"
        )

    def fit(self, model: str) -> Fit:
        """Return what of `model` its server takes as much of as happens to be free."""
        return self._subjects[model].fit

    async def refresh(self, models: Iterable[str] | None = None) -> list[str]:
        """Look at the files of `models` (None: all) again; return those whose figure changed.

        What was learned of another file, command or engine is forgotten.
        """
        changed = []
        for model in self._subjects if models is None else models:
            if self._subjects[model].declared is not None:
                continue
            before = self.figure(model)
            await self._look_again(model)
            if self.figure(model) != before:
                changed.append(model)
        return changed

    def saw(self, model: str, held: Bytes) -> Bytes | None:
        """Take in what an awake model holds a device; return its need if that is another now.

        It is the most that was ever seen, but no more than pinned models leave of a device: a model
        that grows while it is awake isn't refused for that.
        """
        subject, known = self._subjects[model], self._known[model]
        if subject.declared is not None or (subject.fit and not known.whole):
            return None
        held = self._capped(model, held)
        before = known.learned
        if before is None:
            grown = held
        else:
            grown = {d: size for d, size in held.items() if _is_more(size, before.get(d))}
        if not grown and before is not None:
            return None
        return self._learn(model, {**(before or {}), **grown}, "the most it was seen to hold")

    def started(self, model: str, *, whole: bool) -> None:
        """Take in how a fitted model was started: `whole`, or made smaller to fit."""
        self._known[model].whole = whole

    def ran_out(self, model: str) -> Bytes | None:
        """Take in that memory ran out while `model` was loaded; return its need, if that is known.

        It is raised, and kept for the next time. What is declared stays as it is.
        """
        figure = self.figure(model)
        if figure.source not in (Source.LEARNED, Source.ESTIMATED):
            return None
        wanted = {device: round(size * _RAISE) for device, size in figure.bytes.items()}
        raised = {
            device: max(figure.bytes[device], size)
            for device, size in self._capped(model, wanted).items()
        }
        why = f"memory ran out while it was loaded with what was {figure.source} before"
        return self._learn(model, raised, why)

    def _learn(self, model: str, bytes_: Bytes, why: str) -> Bytes:
        known = self._known[model]
        known.learned, known.why = bytes_, why
        if known.identity:
            now = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
            row = (known.identity, model, json.encode(bytes_).decode(), why, now)
            self._store.write(_KEEP, row)
        return bytes_

    async def _look_again(self, model: str) -> None:
        known, command = self._known[model], self._subjects[model].command
        identity = await asyncio.to_thread(identity_of, command)
        if identity == known.identity:
            return
        if known.identity and known.learned:
            logger.info("model %s: what was learned of its memory doesn't hold any more", model)
        estimate = await self._estimated(model)
        learned, why = await self._recall(identity)
        # Only now, so that readers never see one without the other.
        known.identity, known.estimate = identity, estimate
        known.learned, known.why = learned, why

    async def _estimated(self, model: str) -> Estimated | None:
        try:
            return await asyncio.to_thread(self._estimate, model)
        except (LlmsnapError, OSError) as error:
            logger.warning("model %s: what it needs can't be estimated: %s", model, error)
            return None

    async def _recall(self, identity: str) -> tuple[Bytes | None, str]:
        """Return what the database has about `identity`."""
        try:
            rows = await self._store.read(_FIND, (identity,))
        except StoreFailed as error:
            logger.warning("what was learned of memory isn't known: %s", error)
            rows = []
        for text, why in rows:
            self._store.write(_TOUCH, (identity,))
            try:
                return json.decode(text, type=dict[str, int]), str(why)
            except DecodeError as error:
                logger.warning("a learned footprint can't be read: %s", error)
        return None, ""

    def _capped(self, model: str, bytes_: Bytes) -> Bytes:
        """Return `bytes_`, on no device more than pinned models leave of it to `model`."""
        room = dict(self._capacity())
        for other, subject in self._subjects.items():
            if other == model or not subject.pinned:
                continue
            figure = self.figure(other)
            sure = figure.certain if figure.source is Source.ESTIMATED else figure.bytes
            for device, size in sure.items():
                room[device] = room.get(device, 0) - size
        return {
            device: max(0, min(size, room[device])) if device in self._capacity() else size
            for device, size in bytes_.items()
        }


def _is_more(size: int, before: int | None) -> bool:
    return before is None or size >= before + max(_NOTICEABLE, before // _FINE)
