"""A model's processes as one: stop them all, let them all go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress

from llmsnap.sleep.offload import Deadline
from llmsnap.sleep.processes import Seen, family, look, threads


def living(pid: int) -> list[Seen]:
    """Return `pid` and all below it that live, parents first."""
    return [one for one in family(pid) if not one.dead]


def pids(pid: int) -> list[int]:
    """Return the pids of `living`; raise ProcessLookupError when there are none."""
    found = [one.pid for one in living(pid)]
    if not found:
        raise ProcessLookupError(f"pid {pid} has ended")
    return found


def lives(one: Seen) -> bool:
    """Whether it is still there, and its pid isn't another process's by now."""
    return _now(one) is not None


def stop(pid: int, deadline: Deadline) -> list[Seen]:
    """Stop `pid` and all below it; return them, parents first.

    A process can have forked while its signal was on its way, but not once all of its threads rest:
    so what is new is stopped too, until there is nothing new. Raises TimeoutError and
    PermissionError, and then all of them go on.
    """
    stopped: list[Seen] = []
    known: set[tuple[int, int]] = set()
    try:
        while fresh := [one for one in living(pid) if (one.pid, one.started) not in known]:
            for one in fresh:
                stopped.append(one)
                _send(one, signal.SIGSTOP)
            known |= {(one.pid, one.started) for one in fresh}
            deadline.wait(lambda: all(map(_rests, stopped)))
    except (TimeoutError, PermissionError):
        signal_all(stopped, signal.SIGCONT)
        raise
    return stopped


def go_on(processes: Sequence[Seen], deadline: Deadline) -> None:
    """Let `processes`, parents first, go on; raise TimeoutError when one of them doesn't."""
    signal_all(processes, signal.SIGCONT)
    deadline.wait(lambda: not any(map(_is_stopped, processes)))


def signal_all(processes: Sequence[Seen], signum: signal.Signals) -> None:
    """Send `signum` to those of `processes` that it can reach.

    Children get it before their parents: no parent then learns that they were stopped.
    """
    for one in reversed(processes):
        with suppress(PermissionError):
            _send(one, signum)


def _send(one: Seen, signum: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(one.pid)
        try:
            if lives(one):
                signal.pidfd_send_signal(handle, signum)
        finally:
            os.close(handle)


def _now(one: Seen) -> Seen | None:
    now = look(one.pid)
    return None if now is None or now.dead or now.started != one.started else now


def _rests(one: Seen) -> bool:
    """Whether no thread of it runs code of its own any more.

    One that waits in the kernel (D) stops before it comes out; the parent of a `vfork` may not come
    out at all while its child is stopped.
    """
    if (now := _now(one)) is None:
        return True
    if not (now.stopped or now.letter == "D"):
        return False  # the first thread is read alone: it says so most of the time
    return all(each.stopped or each.dead or each.letter == "D" for each in threads(one.pid))


def _is_stopped(one: Seen) -> bool:
    now = _now(one)
    return now is not None and now.letter == "T"
