"""A clock that stands still until it is moved: for silences that mustn't be a matter of luck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from llmsnap.web.patience import Patience
from llmsnap.web.sse import Silence


@dataclass
class Alarm:
    """What is to happen at a time."""

    at: float
    callback: Callable[[], None]
    is_over: bool = False

    def cancel(self) -> None:
        """Call nobody."""
        self.is_over = True


@dataclass
class HandClock:
    """Stands in for an event loop where nothing but its time is asked for."""

    now: float = 0.0
    alarms: list[Alarm] = field(default_factory=list)

    def time(self) -> float:
        """Return the time that it is."""
        return self.now

    def call_at(self, at: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` once it is so late."""
        alarm = Alarm(at, callback)
        self.alarms.append(alarm)
        return alarm

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` after so much time."""
        return self.call_at(self.now + delay_s, callback)

    def advance(self, seconds: float) -> None:
        """Let so much time pass; what is due by then happens in its order."""
        end = self.now + seconds
        while alarm := min(self._due(end), key=lambda alarm: alarm.at, default=None):
            alarm.is_over, self.now = True, alarm.at
            alarm.callback()
        self.now = end

    def silence(self, after_s: float, broken: Callable[[], None]) -> Silence:
        """A silence by this clock."""
        return Silence(cast(asyncio.AbstractEventLoop, self), after_s, broken)

    def keeps(self, monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
        """Have all silences of those modules of `llmsnap.web` go by it."""
        for module in modules:
            monkeypatch.setattr(
                f"llmsnap.web.{module}.Silence", lambda _, *more: self.silence(*more)
            )

    def keeps_patience(self, monkeypatch: pytest.MonkeyPatch) -> list[Patience]:
        """Have the limits of all servers go by it; return them as they are made."""
        made: list[Patience] = []

        def patience(_: asyncio.AbstractEventLoop) -> Patience:
            made.append(Patience(cast(asyncio.AbstractEventLoop, self)))
            return made[-1]

        monkeypatch.setattr("llmsnap.web.reply.Patience", patience)
        return made

    def _due(self, end: float) -> list[Alarm]:
        self.alarms = [alarm for alarm in self.alarms if not alarm.is_over]
        return [alarm for alarm in self.alarms if alarm.at <= end]
