"""Notes about living children, for the proxy that comes after one that died.

A child dies with the proxy, but what a shell wrapper started may live on and keep its memory; and
with `runtime.adopt` it lives on itself. The note says how to find it without ever touching a
process that only got the same pid, and what the next proxy must know to go on with it.
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
from typing import Any, Final, Literal

from msgspec import DecodeError, Struct, json, structs

from llmsnap.runtime.logfile import log_files
from llmsnap.runtime.process import Child, signal_each
from llmsnap.runtime.proctable import Table, boot_id, family, read_entry, read_table

logger = logging.getLogger(__name__)

_GRACE_S: Final = 3.0
_LAST_S: Final = 5.0
"""How long what was killed may take to be gone."""


class Will(Struct, frozen=True, kw_only=True):
    """What the next proxy must know to go on with a child that outlives this one."""

    effect: str
    """Of its command, environment and port; see `adoption.effect_of`."""
    seen: str = ""
    """A digest of its command line as the kernel showed it when it was ready."""
    generation: int
    state: Literal["starting", "ready", "moving", "asleep"] = "starting"
    """While it starts, or is on its way to sleep or back, nobody can go on with it."""
    host: str = ""
    """The address that answered, from `ready` on."""
    start_s: float = 0.0
    """From launch to ready."""
    driver: str = ""
    """By which it sleeps, when it is asleep."""
    memo: Mapping[str, Any] = {}
    """What that driver must know to wake it."""


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
    will: Will | None = None
    """None: it isn't meant to outlive its proxy."""

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
        self._notes: dict[str, RunNote] = {}
        """Of children with a will, by their marks."""

    def add(
        self,
        child: Child,
        *,
        model: str,
        command: Sequence[str],
        stop_signal: signal.Signals = signal.SIGTERM,
        kill: bool = True,
        will: Will | None = None,
    ) -> None:
        """Write the note about `child`; `command` must hold no secrets. Failure is only logged."""
        owner_pid, owner_started = _us()
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
            owner_pid=owner_pid,
            owner_started=owner_started,
            boot_id=boot_id(),
            written_at=datetime.now(UTC).isoformat(timespec="seconds"),
            will=will,
        )
        if will is not None:
            self._notes[note.mark] = note
        self._put_down(note)

    def change(self, mark: str, **changes: Any) -> None:
        """Change the will of the child with `mark`; nothing where it has none."""
        note = self._notes.get(mark)
        if note is not None and note.will is not None:
            note = structs.replace(note, will=structs.replace(note.will, **changes))
            self._notes[mark] = note
            self._put_down(note)

    def claim(self, note: RunNote) -> None:
        """Make a left-over that will be gone on with our own, so that no other proxy takes it."""
        owner_pid, owner_started = _us()
        note = structs.replace(note, owner_pid=owner_pid, owner_started=owner_started)
        self._notes[note.mark] = note
        self._put_down(note)

    def remove(self, mark: str) -> None:
        """Delete what there is about the child with `mark`, who is gone."""
        self._notes.pop(mark, None)
        for path in (self._path(mark), *log_files(self.log_path(mark))):
            _forget(path)

    def log_path(self, mark: str) -> Path:
        """Return where the child with `mark` prints to, if it has a will."""
        return self._folder / f"{mark}.log"

    def is_noted(self, mark: str) -> bool:
        """Whether the next proxy can go on with the child with `mark`."""
        note = self._notes.get(mark)
        return note is not None and self._path(mark).exists()

    def leftovers(self) -> list[RunNote]:
        """Return the notes of dead proxies; those that can't be read are set aside."""
        table = read_table()
        notes = [note for path in self._paths() if (note := self._read(path)) is not None]
        return [note for note in notes if not note.owner_lives(table)]

    async def end_leftovers(self) -> int:
        """End what dead proxies left behind; return how many processes that were.

        Notes of proxies that live are left alone.
        """
        return sum(await asyncio.gather(*(self.end(note) for note in self.leftovers())))

    async def end(self, note: RunNote, why: str = "left by a proxy that died") -> int:
        """End the family of `note`, then forget it; return how many processes it had."""
        found = note.members(read_table())
        if found:
            pids = ", ".join(map(str, sorted(found)))
            logger.warning("model %s: ending pid %s, %s", note.model, pids, why)
        if not (note.kill and note.will is not None and note.will.state == "asleep"):
            # What sleeps can't obey.
            await _deliver(note, signal.Signals(note.stop_signal), _GRACE_S)
        if note.kill:
            await _deliver(note, signal.SIGKILL, _LAST_S)
        left = note.members(read_table())
        if left:
            pids = ", ".join(map(str, sorted(left)))
            spared = "" if note.kill else ", and `kill: false` spares it"
            text = "model %s: pid %s doesn't end%s; what it holds counts as other programs'"
            logger.error(text, note.model, pids, spared)
        else:
            self.remove(note.mark)
        return len(found)

    def _path(self, mark: str) -> Path:
        return self._folder / f"{mark}.json"

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"))

    def _put_down(self, note: RunNote) -> None:
        try:
            self._write(self._path(note.mark), json.encode(note))
        except OSError as error:
            if not self._broken:
                logger.warning("run files can't be written in %s: %s", self._folder, error)
            self._broken = True

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
            note = json.decode(path.read_bytes(), type=RunNote)
            if note.mark != path.stem:
                raise DecodeError("it has another's name")
            return note
        except OSError:
            return None
        except (DecodeError, UnicodeDecodeError) as error:
            aside = path.with_suffix(".broken")
            logger.warning("run file %s can't be read (%s); set aside as %s", path, error, aside)
            with contextlib.suppress(OSError):
                path.replace(aside)
            return None


def _us() -> tuple[int, float]:
    entry = read_entry(os.getpid())
    return os.getpid(), entry.started if entry else 0.0


def _forget(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


async def _deliver(note: RunNote, signum: signal.Signals, within_s: float) -> None:
    """Send `signum` to who is left, and give them time to obey."""
    table = read_table()
    signal_each(note.members(table), table, signum)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while note.members(read_table()):  # noqa: ASYNC110 - the kernel tells only parents
                await asyncio.sleep(0.02)


def state_folder(environ: Mapping[str, str], override: Path | None = None) -> Path:
    """Return where llmsnap keeps its files: `override`, or the place that XDG gives."""
    if override is not None:
        return override
    if home := environ.get("XDG_STATE_HOME"):
        return Path(home) / "llmsnap"
    return Path(environ.get("HOME") or Path.home()) / ".local" / "state" / "llmsnap"
