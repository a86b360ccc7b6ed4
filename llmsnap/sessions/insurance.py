"""Saves that only insure: what sleeps keeps its cache, unless it is killed before it wakes.

Nobody is kept waiting for one for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from llmsnap.sessions.desk import Desk
from llmsnap.sessions.subject import Process

logger = logging.getLogger(__name__)

_MOST_S: Final = 5.0
"""How long a sleep waits for it while nobody waits for the sleep."""
_WAITED_FOR_S: Final = 1.0
"""The same once somebody does."""
_STEP_S: Final = 0.1


async def insure(desk: Desk, process: Process, is_awaited: Callable[[], bool]) -> None:
    """Save what is new of `process` before it sleeps, for as long as that is worth it.

    `is_awaited()` says whether somebody waits for a model. Then nothing is begun that takes too
    long by what earlier saves took, and what takes longer after all is given up.
    """
    if is_awaited() and (takes_s := desk.takes_s(process)) > _WAITED_FOR_S:
        logger.info("model %s: sleeps unsaved: it would take %.1f s", process.model, takes_s)
        return
    saving = asyncio.ensure_future(desk.save(process, least_new=desk.min_tokens, limit_s=_MOST_S))
    try:
        waited_s = 0.0
        while waited_s < _WAITED_FOR_S:
            await asyncio.wait({saving}, timeout=_STEP_S)
            if saving.done():
                return saving.result()
            waited_s += _STEP_S * is_awaited()
        logger.info("model %s: sleeps unsaved: somebody waits", process.model)
    finally:
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)  # nothing of it meets the sleep
