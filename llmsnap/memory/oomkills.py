"""How often the kernel has ended a process because memory ran out."""

from __future__ import annotations

from pathlib import Path

from llmsnap.memory import cgroup, kernel


def oom_kills(root: Path = Path("/")) -> int | None:
    """Return a count that grows with each such end that we can see; None: we see none.

    Ends in our own cgroup count, and those on the whole machine, where a child may be in another
    one. `root` is the folder under which `proc` and `sys` are looked for.
    """
    counts = [_count(root / "proc" / "vmstat")]
    membership, mounts = (_text(root / "proc" / "self" / n) for n in ("cgroup", "mountinfo"))
    for folder in cgroup.folders(membership, mounts):
        name = "memory.events" if folder.version == 2 else "memory.oom_control"
        counts.append(_count(root / folder.path.relative_to("/") / name))
    seen = [count for count in counts if count is not None]
    return sum(seen) if seen else None


def _count(file: Path) -> int | None:
    return kernel.counters(_text(file)).get("oom_kill")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
