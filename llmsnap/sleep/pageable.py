"""Whether a model's processes can be paged out: each function says why not, with the remedy.

Empty means that nothing is in the way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from llmsnap.config.quantities import size_text
from llmsnap.sleep.driver import Target
from llmsnap.sleep.mappings import mappings

Listens = Callable[[Collection[int], str, int], Awaitable[bool]]
"""Whether one of these pids listens on this host and port, and the host is this machine."""

_PROC: Final = Path("/proc")
_GPUS: Final = re.compile(r"/dev/(nvidia|kfd|dri/|accel/|dxg)")
_GO_BETWEENS: Final = (
    *("docker", "podman", "nerdctl", "kubectl", "docker-proxy", "conmon"),
    *("ssh", "autossh", "socat", "ncat"),
)


class SwapRoom(Protocol):
    """How much swap there is, and how much of it is left."""

    @property
    def total_bytes(self) -> int: ...

    @property
    def free_bytes(self) -> int: ...


class Held(Protocol):
    """What processes hold, in bytes."""

    @property
    def rss_bytes(self) -> int: ...

    @property
    def anonymous_bytes(self) -> int: ...

    @property
    def shared_bytes(self) -> int: ...

    @property
    def swap_bytes(self) -> int: ...

    @property
    def locked_bytes(self) -> int: ...


class Machine(Protocol):
    """Anything that can say what processes hold and how full swap is; quick enough to wait for."""

    def swap(self) -> SwapRoom: ...

    def usage(self, pids: Iterable[int]) -> Held: ...


def only_for_swap(held: Held) -> int:
    """Return what only swap can take; the kernel drops pages of files whenever it likes."""
    return held.anonymous_bytes + held.shared_bytes


async def listener_fault(target: Target, pids: Iterable[int], listens: Listens) -> str:
    """Return why none of `pids` is the server that answers for the model."""
    for pid in pids:
        if await listens([pid], target.host, target.port):
            return go_between_fault(_name(_PROC / str(pid)))
    return (
        f"none of its processes listens on {target.host}:{target.port}, so the server is out of "
        "reach (a container, another machine, a daemon?); let `cmd` start it directly"
    )


def go_between_fault(name: str) -> str:
    """Return why a server behind the program `name` can't be reached."""
    if name in _GO_BETWEENS:
        return f"{name} listens for the server, which is out of reach; let `cmd` start it directly"
    return ""


def gpu_fault(pids: Iterable[int], proc: Path = _PROC) -> str:
    """Return which GPU is open; raises PermissionError when a process may not be looked at."""
    for process in (proc / str(pid) for pid in pids):
        for path in _open_files(process):
            if _GPUS.match(path):
                return f"{_name(process)} has {path} open, and what uses a GPU isn't paged out"
    return ""


def lock_fault(held: Held) -> str:
    """Return whether too much is locked in memory."""
    if held.locked_bytes > held.rss_bytes // 10:
        return f"{size_text(held.locked_bytes)} are locked in memory; start it without --mlock"
    return ""


def swap_fault(held: Held, room: SwapRoom, *, promised: int = 0) -> str:
    """Return whether swap is short, when so many bytes of it are promised to others."""
    needed = only_for_swap(held)
    if not room.total_bytes:
        return f"there is no swap for its {size_text(needed)}; make a swap file, or set up zram"
    left = max(0, room.free_bytes - promised)
    if needed > left:
        return (
            f"swap is short: {size_text(needed)} are to go there, {size_text(left)} of "
            f"{size_text(room.total_bytes)} are left; make it larger"
        )
    return ""


def _open_files(process: Path) -> Iterator[str]:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended: it holds nothing
        for entry in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                yield os.readlink(entry)
        # A device may stay mapped when its file is closed.
        yield from (mapping.path for mapping in mappings(process))


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return ""
