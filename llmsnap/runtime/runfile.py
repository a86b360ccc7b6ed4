"""Notes about living children, for the proxy that comes after one that died.

A child dies with the proxy, but what a shell wrapper started may live on and keep its memory. The
note says how to find it without ever touching a process that only got the same pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, json

from llmsnap.runtime.process import Child, signal_each
from llmsnap.runtime.proctable import Table, boot_id, family, read_entry, read_table

logger = logging.getLogger(__name__)

_GRACE_S: Final = 3.0


class RunNote(Struct, frozen=True, kw_only=True):
    """One living child: what it is, how to know it again, and whose it was."""

    model: str
    command: Sequence[str]
    pid: int
    started: float
    """In the unit of `proctable.Entry.started`."""
    pgid: int
    sid: int
    mark: str
    stop_signal: int = signal.SIGTERM
    kill: bool = True
    owner_pid: int
    owner_started: float
    boot_id: str
    written_at: str

    def __post_init__(self) -> None:
        signal.Signals(self.stop_signal)  # raises ValueError, which makes it a broken file

    def members(self, table: Table) -> set[int]:
        """Return the pids of the child and of all that came from it, as far as they live."""
        if self.boot_id != boot_id():
            return set()
        return family(table, pid=self.pid, started=self.started, mark=self.mark)

    def owner_lives(self, table: Table) -> bool:
        """Whether the proxy that wrote this still runs."""
        owner = table.get(self.owner_pid)
        return (
            self.boot_id == boot_id()
            and owner is not None
            and owner.started == self.owner_started
            and not owner.zombie
        )


class RunFiles:
    """One file a living child in a folder that only we may read."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "run"
        self._broken = False

    def add(
        self,
        child: Child,
        *,
        model: str,
        command: Sequence[str],
        stop_signal: signal.Signals = signal.SIGTERM,
        kill: bool = True,
    ) -> None:
        """Write the note about `child`; `command` must hold no secrets. Failure is only logged."""
        us = read_entry(os.getpid())
        note = RunNote(
            model=model,
            command=list(command),
            pid=child.pid,
            started=child.started,
            pgid=child.pid,
            sid=child.pid,
            mark=child.mark,
            stop_signal=stop_signal,
            kill=kill,
            owner_pid=os.getpid(),
            owner_started=us.started if us else 0.0,
            boot_id=boot_id(),
            written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        try:
            self._write(self._path(child.mark), json.encode(note))
        except OSError as error:
            if not self._broken:
                logger.warning("run files can't be written in %s: %s", self._folder, error)
            self._broken = True

    def remove(self, mark: str) -> None:
        """Delete the note about the child with `mark`, who is gone."""
        _forget(self._path(mark))

    async def end_leftovers(self) -> int:
        """End what dead proxies left behind; return how many processes that were.

        Notes of proxies that live are left alone; files that can't be read are set aside.
        """
        table = read_table()
        notes = {path: note for path in self._paths() if (note := self._read(path)) is not None}
        dead = [(path, note) for path, note in notes.items() if not note.owner_lives(table)]
        return sum(await asyncio.gather(*(_end(path, note) for path, note in dead)))

    def _path(self, mark: str) -> Path:
        return self._folder / f"{mark}.json"

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"))

    def _write(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        draft = path.with_suffix(".new")
        try:
            with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(data)
            draft.replace(path)
        except OSError:  # a full disk lets us make a file and not fill it
            _forget(draft)
            raise

    def _read(self, path: Path) -> RunNote | None:
        try:
            return json.decode(path.read_bytes(), type=RunNote)
        except OSError:
            return None
        except (DecodeError, UnicodeDecodeError) as error:
            aside = path.with_suffix(".broken")
            logger.warning("run file %s can't be read (%s); set aside as %s", path, error, aside)
            with contextlib.suppress(OSError):
                path.replace(aside)
            return None


async def _end(path: Path, note: RunNote) -> int:
    """End the family of `note`, then forget it; return how many processes it had."""
    found = note.members(read_table())
    if found:
        pids = ", ".join(map(str, sorted(found)))
        logger.warning("model %s: ending pid %s, left by a proxy that died", note.model, pids)
    await _deliver(note, signal.Signals(note.stop_signal))
    if note.kill:
        await _deliver(note, signal.SIGKILL)
    left = note.members(read_table())
    if left:
        logger.error("model %s: %d left-over processes don't end", note.model, len(left))
    else:
        _forget(path)
    return len(found)


def _forget(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


async def _deliver(note: RunNote, signum: signal.Signals) -> None:
    """Send `signum` to who is left, and give them time to obey."""
    table = read_table()
    signal_each(note.members(table), table, signum)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            while note.members(read_table()):  # noqa: ASYNC110 - the kernel tells only parents
                await asyncio.sleep(0.02)


def state_folder(environ: Mapping[str, str], override: Path | None = None) -> Path:
    """Return where llmsnap keeps its files: `override`, or the place that XDG gives."""
    if override is not None:
        return override
    if home := environ.get("XDG_STATE_HOME"):
        return Path(home) / "llmsnap"
    return Path(environ.get("HOME") or Path.home()) / ".local" / "state" / "llmsnap"
