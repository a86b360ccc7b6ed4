"""Builds what is kept of the past, and what finds it again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from llmsnap.config.schema import Config
from llmsnap.memory import footprints
from llmsnap.runtime.tasks import Background
from llmsnap.store.store import Store
from llmsnap.telemetry import rows
from llmsnap.telemetry.activity import Activity
from llmsnap.telemetry.captures import Captures
from llmsnap.telemetry.events import Events
from llmsnap.telemetry.history import History
from llmsnap.telemetry.metrics import Device
from llmsnap.telemetry.parting import Partings
from llmsnap.telemetry.performance import Performance
from llmsnap.telemetry.recorder import Recorder

SCHEMAS: Final = (footprints.SCHEMA, rows.SCHEMA)
"""The tables of all parts that keep rows."""


class Keeping:
    """The database, and what is written there of requests and models."""

    def __init__(self, config: Config, state_dir: Path, recorder: Recorder) -> None:
        path = config.store.path
        self.store = Store(state_dir / "llmsnap.db" if path is None else Path(path), SCHEMAS)
        self._config = config
        self._recorder = recorder
        self._background = Background()
        self.history = History(self.store)
        self.events = Events()
        self.captures = Captures(config.capture_buffer_mb * 1024**2)
        if config.activity.mode == "on" and config.activity.prompts:
            recorder.listen(Partings().take)  # before the captures are taken away
        if config.activity.mode == "on":
            activity = Activity(
                self.store,
                rows=self._most_rows,
                days=config.activity.days,
                captures=self.captures,
                announce=lambda id_: self.events.publish("activity", lambda: {"id": id_}),
            )
            recorder.listen(activity.take)
            recorder.capture_bytes = config.capture_buffer_mb * 1024**2

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Have the database open within the block, and all written after it."""
        self._background.spawn(self.store.run(), name="store")
        try:
            yield
        finally:
            self._recorder.flush()
            await self.store.aclose()
            await self._background.aclose()

    def sampled(self, devices: Callable[[], Iterable[Device]]) -> Performance | None:
        """Have samples taken of the machine and of `devices`; None: that is turned off."""
        settings = self._config.performance
        if settings.disabled:
            return None
        performance = Performance(settings.every_s, devices)
        self._background.spawn(performance.run(), name="samples")
        return performance

    def _most_rows(self) -> int:
        in_memory = self.store.path is None
        return self._config.metrics_max_in_memory if in_memory else self._config.activity.rows
