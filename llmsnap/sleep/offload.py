"""Blocking work beside the event loop, in threads that can't hold up the end of the program.

A call into the kernel can't be broken off, and may take as long as a disk likes. So each piece of
work has a thread of its own that nobody must wait for, and looks at its deadline between two calls.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

_GRACE_S: Final = 5.0
"""How long the last call into the kernel may go on after the deadline."""
_POLL_S: Final = 0.002
_LOOK_S: Final = 10.0
"""For what takes milliseconds on a machine that is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How slow a disk may be before work on it is given up."""

    base_s: float = 10.0
    lowest_rate: float = 64 * 2**20
    """Bytes a second."""

    def limit_s(self, size: int) -> float:
        """Return the seconds that moving `size` bytes may take."""
        return self.base_s + size / self.lowest_rate


class Deadline:
    """A moment after which work is pointless; it can be called off before."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._called_off = threading.Event()

    def call_off(self) -> None:
        """Make every later `check` raise."""
        self._called_off.set()

    def check(self) -> None:
        """Raise TimeoutError when it has passed or was called off."""
        if self._called_off.is_set() or self._clock() > self._end:
            raise TimeoutError

    def wait(self, condition: Callable[[], bool]) -> None:
        """Return once `condition` holds; raise TimeoutError when it doesn't in time."""
        while not condition():
            self.check()
            time.sleep(_POLL_S)


async def in_thread(work: Callable[[Deadline], T], *, limit_s: float, name: str) -> T:
    """Return what `work` returns, or raise what it raises.

    Raises TimeoutError when it takes longer than `limit_s`; then, and when the caller is cancelled,
    the thread ends at its next look at the deadline.
    """
    loop = asyncio.get_running_loop()
    deadline = Deadline(limit_s)
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # T may be None itself

    def run() -> None:
        result: T | None = None
        failure: Exception | None = None
        try:
            result = work(deadline)
        except Exception as error:  # a thread's root: the caller gets it
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        async with asyncio.timeout(limit_s + _GRACE_S):
            return await done
    finally:
        deadline.call_off()


async def look(work: Callable[[], T]) -> T:
    """Return what `work` returns: it only reads what the kernel shows, but that isn't instant."""
    return await in_thread(lambda _: work(), limit_s=_LOOK_S, name="look at processes")


def words(error: Exception) -> str:
    """Return what went wrong with work in a thread, for people."""
    if isinstance(error, TimeoutError):
        return "the disk is too slow for it, or the kernel is stuck"
    return str(error)


def for_each(items: Iterable[T], work: Callable[[T], object], *, threads: int) -> None:
    """Call `work` with each of `items`, in several threads at once; raise the first error."""
    pending, lock = iter(items), threading.Lock()
    errors: list[Exception] = []

    def run() -> None:
        while not errors:
            with lock:
                item = next(pending, None)
            if item is None:
                return
            try:
                work(item)
            except Exception as error:  # a thread's root: the caller gets it
                errors.append(error)

    others = [threading.Thread(target=run, daemon=True) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    run()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
