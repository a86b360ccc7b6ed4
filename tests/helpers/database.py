"""A database as one proxy has it open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from llmsnap.runtime.tasks import Background
from llmsnap.store.schema import Schema
from llmsnap.store.store import Store


@asynccontextmanager
async def running_store(path: Path, *schemas: Schema, limit: int = 10_000) -> AsyncIterator[Store]:
    """A database that is open; all that was written is in its file afterwards."""
    store = Store(path, schemas, linger_s=0, limit=limit)
    background = Background()
    writer = background.spawn(store.run(), name="store")
    try:
        yield store
    finally:
        await store.aclose()
        await asyncio.wait({writer}, timeout=60)  # on a slow disk longer than a proxy would
        await background.aclose()


def opened(folder: Path, schema: Schema) -> AbstractAsyncContextManager[Store]:
    """The database in `folder`, where a proxy has it."""
    return running_store(folder / "llmsnap.db", schema)
