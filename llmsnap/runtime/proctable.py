"""Who runs on this machine, since when, and who belongs together.

Linux is read from /proc, because its start times are exact there (ticks since boot; psutil turns
them into wall-clock time, which moves when the clock is set). Elsewhere psutil is asked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

ON_LINUX: Final = sys.platform == "linux"

MARK_VARIABLE: Final = "LLMSNAP_RUN_ID"
"""Every descendant of a child inherits it, whichever group, session or parent it moves to."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One process, as the kernel shows it."""

    pid: int
    parent: int
    group: int
    session: int
    started: float
    """Ticks since boot on Linux, else seconds since the epoch: only for comparing."""
    zombie: bool = False


Table = Mapping[int, Entry]


def read_table() -> dict[int, Entry]:
    """Return every process by its pid."""
    return {entry.pid: entry for pid in _pids() if (entry := read_entry(pid)) is not None}


def read_entry(pid: int) -> Entry | None:
    """Return one process; None when there is no such pid."""
    return _entry_from_proc(pid) if ON_LINUX else _entry_from_psutil(pid)


def command_line(pid: int) -> tuple[str, ...]:
    """Return the words that `pid` was started with; empty when they can't be read."""
    if ON_LINUX:
        with suppress(OSError):
            words = _read(f"/proc/{pid}/cmdline").rstrip(b"\0").split(b"\0")
            return tuple(word.decode(errors="replace") for word in words if word)
        return ()
    import psutil

    with suppress(psutil.Error):
        return tuple(psutil.Process(pid).cmdline())
    return ()


def carries(pid: int, mark: str) -> bool:
    """Whether the environment of `pid` holds `mark`; False when it can't be read."""
    if ON_LINUX:
        wanted = f"{MARK_VARIABLE}={mark}".encode()
        with suppress(OSError):
            return wanted in _read(f"/proc/{pid}/environ").split(b"\0")
        return False
    import psutil

    with suppress(psutil.Error):
        return psutil.Process(pid).environ().get(MARK_VARIABLE) == mark
    return False


def boot_id() -> str:
    """Return what differs between two boots; empty where start times need no such help."""
    with suppress(OSError):
        return _read("/proc/sys/kernel/random/boot_id").decode().strip()
    return ""


def family(
    table: Table,
    *,
    pid: int,
    started: float,
    mark: str,
    session_is_ours: bool = False,
    carries: Callable[[int, str], bool] = carries,
) -> set[int]:
    """Return the living processes that came from the child `pid`, itself included.

    `started` guards against a pid that was given out anew. The session counts only while its leader
    is known to be ours: then, or when `session_is_ours`, because the caller is its parent. Zombies
    and this very process are never members.
    """
    leader = table.get(pid)
    leads = leader is not None and leader.started == started
    trusted = leads or (session_is_ours and leader is None)

    def belongs(entry: Entry) -> bool:
        if entry.pid == pid:
            return leads
        return (trusted and entry.session == pid) or carries(entry.pid, mark)

    candidates = [entry for entry in table.values() if entry.started >= started]
    members = {entry.pid for entry in candidates if belongs(entry)}
    members |= _descendants(candidates, members)
    return {member for member in members if not table[member].zombie} - {os.getpid()}


def _descendants(entries: Iterable[Entry], roots: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in entries:
        children.setdefault(entry.parent, []).append(entry.pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        below = [pid for pid in children.get(pending.pop(), ()) if pid not in found]
        found.update(below)
        pending += below
    return found


def _pids() -> list[int]:
    if ON_LINUX:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    import psutil

    return psutil.pids()


def _entry_from_proc(pid: int) -> Entry | None:
    try:
        stat = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name stands in brackets and may hold anything, brackets and blanks included.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Entry(
        pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        started=float(fields[19]),
        zombie=fields[0] in (b"Z", b"X"),
    )


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # a third of the time of Path.read_bytes
        return file.read()


def _entry_from_psutil(pid: int) -> Entry | None:
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return Entry(
                pid,
                parent=process.ppid(),
                group=os.getpgid(pid),
                session=os.getsid(pid),
                started=process.create_time(),
                zombie=process.status() == psutil.STATUS_ZOMBIE,
            )
    except (psutil.Error, OSError):
        return None
