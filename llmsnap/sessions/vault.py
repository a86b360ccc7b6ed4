"""The saved conversations as a whole: room for them, whose turn it is to go, what has to be swept.

Everything that touches the disk runs in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from llmsnap.config.quantities import size_text
from llmsnap.errors import StoreFailed
from llmsnap.sessions import files
from llmsnap.sessions.calendar import Calendar
from llmsnap.sessions.catalogue import Catalogue, Saved
from llmsnap.sessions.files import KEPT, FileFault, Kept

logger = logging.getLogger(__name__)

_GIB: Final = 1024**3
_MOST_BYTES: Final = 20 * _GIB
_DISK_SHARE: Final = 10
_LEAST_FREE: Final = 2 * _GIB
_FREE_SHARE: Final = 20
"""Of a small disk one part in so many is left free."""
_GRACE_S: Final = 300.0
"""For how long a file may be there before its row: another proxy may be about to write that."""
_BROKEN_S: Final = 86400.0
_MOST_AT_ONCE: Final = 0.5
"""The part of their greatest age that files grow older at once, whatever a clock says."""
_LEAST_AT_ONCE_S: Final = 7200.0
"""Ages are counted once an hour at least."""
_PATIENCE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the configuration says of all files together."""

    budget_bytes: int | None = None
    """None: 20 GiB, or a tenth of the disk."""
    max_age_s: float = 0.0
    """0: for ever."""


class Vault:
    """Keeps the files in `folder`; `calendar` counts how old they are."""

    def __init__(
        self, folder: Path, catalogue: Catalogue, limits: Limits, calendar: Calendar
    ) -> None:
        self.folder = folder
        self.catalogue = catalogue
        self.fault = ""
        """Why nothing can be saved; empty: it can."""
        self.calendar = calendar
        self.adopt(limits)

    def adopt(self, limits: Limits) -> None:
        """Go by other limits, from the next save on, and the next time that it is tidied up."""
        self._limits = limits
        age_s = limits.max_age_s or inf
        self.calendar.most_s = max(age_s * _MOST_AT_ONCE, _LEAST_AT_ONCE_S)

    async def make_fit(self) -> bool:
        """Make the folder fit for use, or say in the log why that can't be.

        To be called before a server is told to save there: it ends where the folder isn't.
        """
        try:
            await asyncio.to_thread(files.prepare, self.folder)
        except FileFault as fault:
            self.fault = str(fault)
            logger.error("conversations aren't saved: %s", fault)
            return False
        self.fault = ""
        return True

    async def load(self) -> None:
        """Learn what is there, and how old it is, and tidy it up."""
        calendar = self.calendar
        if not calendar.is_taken_up:
            with suppress(StoreFailed):  # the next one says so
                reached = await self.catalogue.reached()
                calendar.take_up(*(reached or (calendar.wall(), calendar())))
        await self.catalogue.refresh()
        await self.sweep()
        self.note_time()

    def note_time(self) -> None:
        """Keep what time it is, for the next proxy to go on from."""
        if self.calendar.is_taken_up:  # else it may count from another moment than the index
            self.catalogue.reach(self.calendar.wall(), self.calendar())

    async def sweep(self) -> None:
        """Delete what is too old, and files that nobody knows; forget what isn't there."""
        now, limit = self.calendar(), self._limits.max_age_s
        old = [s.name for s in self.catalogue.all() if limit and s.used < now - limit]
        await self.delete(old)
        there = await asyncio.to_thread(files.sizes, self.folder)
        known = {saved.name for saved in self.catalogue.all()}
        self.catalogue.drop(known - there.keys())
        wall = self.calendar.wall()  # that of the disk
        if self.catalogue.is_lasting:
            swept = await asyncio.to_thread(
                files.sweep,
                self.folder,
                known,
                older_than=wall - _GRACE_S,
                broken_before=wall - _BROKEN_S,
            )
            if swept:
                logger.info("%d files that no conversation belongs to were deleted", swept)

    async def make_room(self, wanted: int) -> None:
        """See that the disk has room for `wanted` bytes more. Raises FileFault when it hasn't.

        A folder that has vanished is made again.
        """
        if not await asyncio.to_thread(self.folder.is_dir):
            await asyncio.to_thread(files.prepare, self.folder)
        room = await asyncio.to_thread(files.room, self.folder)
        floor = min(_LEAST_FREE, room.total // _FREE_SHARE)
        lack = floor + wanted - room.free
        if lack <= 0:
            return
        there = await asyncio.to_thread(files.sizes, self.folder)
        going, freed = [], 0
        for saved in self.catalogue.all():
            if freed < lack:
                going.append(saved.name)
                freed += there.get(saved.name, 0)
        if freed < lack:
            raise FileFault(
                f"{size_text(room.free)} are free on the disk of {self.folder}, and "
                f"{size_text(floor)} of that are left alone; free some, or set sessions.dir"
            )
        await self.delete(going)

    async def keep(self, temporary: str, written: int) -> tuple[str, Kept]:
        """Take in what a server has written; return its name. Raises FileFault."""
        told = f"{temporary}{secrets.token_hex(16)}".encode()
        name = hashlib.blake2b(told, digest_size=16).hexdigest() + KEPT
        kept = await asyncio.to_thread(files.promote, self.folder, temporary, name, written)
        return name, kept

    async def add(self, saved: Saved, instead_of: Iterable[str]) -> None:
        """Note `saved`, which takes the place of others, and keep within the budget."""
        await self.catalogue.add(saved)
        await self.delete(instead_of)
        there = await asyncio.to_thread(files.sizes, self.folder)
        excess = sum(there.values()) - await self._budget()
        for other in self.catalogue.all():
            if excess > 0 and other.name != saved.name:
                excess -= there.get(other.name, 0)
                await self.delete([other.name])
        if excess > 0:
            logger.warning("sessions.budget is too small for a conversation of %s", saved.model)
            await self.delete([saved.name])

    async def fault_of(self, saved: Saved) -> str:
        """Return what is wrong with the file of `saved`; empty: nothing."""
        return await asyncio.to_thread(files.fault_of, self.folder, saved.name, saved.kept)

    async def set_aside(self, saved: Saved) -> None:
        """Take `saved` out of use."""
        self.catalogue.drop([saved.name])
        await asyncio.to_thread(files.set_aside, self.folder, saved.name)

    async def look_again(self) -> None:
        """Learn what another proxy has saved, unless that takes long: a request waits for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self.catalogue.refresh()

    async def delete(self, names: Iterable[str]) -> None:
        """Delete files and forget them."""
        gone = list(names)
        self.catalogue.drop(gone)
        for name in gone:
            await asyncio.to_thread(files.remove, self.folder, name)

    async def _budget(self) -> int:
        if self._limits.budget_bytes is not None:
            return self._limits.budget_bytes
        room = await asyncio.to_thread(files.room, self.folder)
        return min(_MOST_BYTES, room.total // _DISK_SHARE)
