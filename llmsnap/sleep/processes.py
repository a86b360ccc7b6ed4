"""What Linux tells of the processes that drivers move, and how likely it is to kill them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_HIGHEST_SCORE: Final = 1000


@dataclass(frozen=True, slots=True)
class Seen:
    """One process at one moment."""

    pid: int
    parent: int
    started: int
    """In ticks since boot: with the pid it names the process for good."""
    letter: str
    """The state, as in `ps`."""

    @property
    def stopped(self) -> bool:
        """Whether a signal or a debugger holds it: driver calls on it would hang."""
        return self.letter in "Tt"

    @property
    def dead(self) -> bool:
        """Whether nothing but an entry for its parent is left."""
        return self.letter in "ZX"


def look(pid: int) -> Seen | None:
    """Return how `pid` is, as its first thread is; None when there is no such process."""
    return _read(_PROC / str(pid), pid)


def threads(pid: int) -> list[Seen]:
    """Return each thread of `pid`: some may run on while the first one is stopped already."""
    folder = _PROC / str(pid) / "task"
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [one for name in names if (one := _read(folder / name, int(name)))]


def _read(entry: Path, pid: int) -> Seen | None:
    try:
        stat = (entry / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may hold anything, brackets and blanks included.
    fields = stat[stat.rindex(")") + 2 :].split()
    return Seen(pid, parent=int(fields[1]), started=int(fields[19]), letter=fields[0])


def family(pid: int) -> list[Seen]:
    """Return `pid` and all below it; reads the entry of every process, so it takes milliseconds."""
    seen = [one for name in os.listdir(_PROC) if name.isdigit() and (one := look(int(name)))]
    members = [one for one in seen if one.pid == pid]
    for member in members:  # grows as it is walked
        members += [one for one in seen if one.parent == member.pid]
    return members


def raise_oom_score(pid: int, by: int) -> int | None:
    """Make the kernel prefer `pid` when memory runs out; return its score before, or None."""
    path = _PROC / str(pid) / "oom_score_adj"
    with suppress(OSError, ValueError):
        before = int(path.read_text())
        path.write_text(str(min(before + by, _HIGHEST_SCORE)))
        return before
    return None


def set_oom_score(pid: int, score: int) -> None:
    """Give `pid` the score that it had before."""
    with suppress(OSError):
        (_PROC / str(pid) / "oom_score_adj").write_text(str(score))
