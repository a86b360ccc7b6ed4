"""A database as one proxy has it open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from llmsnap.runtime.tasks import Background
from llmsnap.store.schema import Schema
from llmsnap.store.store import Store


@asynccontextmanager
async def opened(folder: Path, schema: Schema) -> AsyncIterator[Store]:
    """The database in `folder`; all that was written is in its file afterwards."""
    store = Store(folder / "llmsnap.db", (schema,), linger_s=0)
    background = Background()
    background.spawn(store.run(), name="store")
    try:
        yield store
    finally:
        await store.aclose()
        await background.aclose()
