"""Waiting for conditions, never for time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def eventually(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
    *,
    timeout_s: float = 40.0,
    what: str = "",
) -> None:
    """Return once `condition` holds; fail the test when it doesn't within `timeout_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        outcome = condition()
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if outcome:
            return
        assert loop.time() < deadline, f"not within {timeout_s} s: {what or condition}"
        await asyncio.sleep(0.005)
