"""Tasks: named, owned and never silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Background:
    """Named tasks, kept alive until done and cancelled together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """How many still run."""
        return len(self._tasks)

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run `coro` in a task of its own; log its crash."""
        task = asyncio.create_task(coro, name=name)  # noqa: TID251 - this is the one place
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    async def settle(self, within_s: float) -> None:
        """Wait until all that runs has ended by itself, for so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    async def aclose(self) -> None:
        """Cancel what still runs and wait for it to end, with whatever it spawned meanwhile."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("task %s crashed", task.get_name(), exc_info=error)


async def race(*contenders: Coroutine[Any, Any, T]) -> T:
    """Return what the first one to end returns, or raise what it raises.

    The others are cancelled, and have ended when this returns or is itself cancelled.
    """
    tasks = [asyncio.create_task(contender) for contender in contenders]  # noqa: TID251 - ends here
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return next(task for task in tasks if task in done).result()


async def unbroken(work: Coroutine[Any, Any, T], *, undo: Callable[[T], Awaitable[object]]) -> T:
    """Return what `work` returns; run it to its end, however often cancelled meanwhile.

    When cancelled, `undo` gets what was made, and the cancellation goes on afterwards.
    """
    task = asyncio.create_task(work)  # noqa: TID251 - ends here
    if not await settled(task):
        return task.result()
    if not task.cancelled() and task.exception() is None:
        await undo(task.result())
    raise asyncio.CancelledError


async def settled(future: asyncio.Future[Any]) -> bool:
    """Wait until `future` is done; return whether the caller was cancelled meanwhile.

    Who returns before, as a second cancellation would make it, leaves behind what `future` still
    works with: raise CancelledError afterwards.
    """
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
