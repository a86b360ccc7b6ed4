"""Tells everybody who follows which requests came, went on or went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from llmsnap.telemetry.events import Events
from llmsnap.web.inflight import InFlight

_LOOK_S: Final = 0.25
"""Between two looks at the requests under way."""


class InFlightNews:
    """Looks at the requests a few times a second: once for all who follow, for nobody never.

    `clock` is that of the records. Use it within the loop.
    """

    def __init__(self, inflight: InFlight, events: Events, clock: Callable[[], float]) -> None:
        self._inflight = inflight
        self._events = events
        self._clock = clock
        self._told: Mapping[int, tuple[bool, int]] = {}
        """The requests that followers know of: whether each is being answered, and its bytes."""
        self._timer: asyncio.TimerHandle | None = None

    def snapshot(self) -> list[dict[str, Any]]:
        """Return all entries, oldest first; who follows from now on hears all that comes later."""
        self._tell()
        if self._timer is None:
            self._wait()
        return self._inflight.entries(self._clock())

    def _look(self) -> None:
        self._timer = None
        if self._events.is_followed:
            self._tell()
            self._wait()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _tell(self) -> None:
        now = {
            number: (one.lease.granted, one.answer.body_bytes)
            for number, one in self._inflight.running.items()
        }
        for number in self._told.keys() - now.keys():
            self._publish({"operation": "remove", "id": str(number)})
        for number, state in now.items():
            if self._told.get(number) != state:
                entry = self._inflight.entry(number, self._clock())
                self._publish({"operation": "upsert", "request": entry})
        self._told = now

    def _publish(self, news: dict[str, Any]) -> None:
        self._events.publish("inflight", lambda: news)
