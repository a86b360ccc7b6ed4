"""How long a model takes to leave its devices and to come back, as measured."""

from __future__ import annotations

from typing import Final

from llmsnap.core.lifecycle import Trigger

_WEIGHT: Final = 0.3
"""Share of the newest measurement in the moving average."""


class Pace:
    """Moving averages of one model's ways out and in, each begun by an order.

    Until a way was measured, half of the guess stands in for it.
    """

    __slots__ = ("_averages", "_guess_s", "_since")

    def __init__(self, guess_s: float) -> None:
        self._guess_s = guess_s
        self._averages: dict[Trigger, float] = {}
        self._since = 0.0

    def begin(self, now: float) -> None:
        """Note that an order goes out now."""
        self._since = now

    def end(self, order: Trigger, now: float) -> None:
        """Note that `order`, the last one that went out, is carried out."""
        took_s = now - self._since
        before_s = self._averages.get(order, took_s)
        self._averages[order] = before_s + _WEIGHT * (took_s - before_s)

    def round_trip_s(self, *, sleeps: bool) -> float:
        """Out and in again: sleep + wake where the model `sleeps`, else stop + start."""
        out, back = (Trigger.SLEEP, Trigger.WAKE) if sleeps else (Trigger.STOP, Trigger.START)
        half_s = self._guess_s / 2
        return self._averages.get(out, half_s) + self._averages.get(back, half_s)

    def back_s(self, *, sleeps: bool) -> float:
        """In again: wake where the model `sleeps`, else start."""
        return self._averages.get(Trigger.WAKE if sleeps else Trigger.START, self._guess_s / 2)
