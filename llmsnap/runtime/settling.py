"""Holds back the news that a model has left its devices until they show its memory as free."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from llmsnap.config.memory import HOST
from llmsnap.config.quantities import size_text
from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import Event, ModelChanged
from llmsnap.memory.attribution import taken_bytes, unlisted_bytes
from llmsnap.memory.device import Reading
from llmsnap.memory.machine import Look, Tree
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.watch import Picture, Watch

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.05
_MAY_STAY: Final = 0.2
"""Share of what it held of a GPU: a driver's own bookkeeping, and what others did meanwhile."""
_MAY_STAY_IN_RAM: Final = 0.1
"""Share of what it held of RAM that a model which sleeps may keep."""
_NOISE_BYTES: Final = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Departure:
    """One model that has left, and what must come back from it."""

    model: str
    held: Mapping[str, int]
    """Bytes a device, when it was last seen there."""
    then: Look
    """What was seen of everything then."""


class Fleet(Protocol):
    """What it needs of the supervisor."""

    @property
    def closing(self) -> bool:
        """Whether nothing is going to start any more."""
        ...


class Settling:
    """Passes reports on; SLEPT and EXITED only when the memory is shown free, or time is up.

    What hasn't come back by then counts as other programs'.
    """

    def __init__(
        self,
        watch: Watch,
        fleet: Fleet,
        background: Background,
        deliver: Callable[[Event], None],
        *,
        timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._watch = watch
        self._fleet = fleet
        self._background = background
        self._deliver = deliver
        self.timeout_s = timeout_s
        """Longest wait for memory to come back."""
        self._clock = clock
        self._left: set[str] = set()
        """Models whose memory is on its way back."""

    def report(self, news: Event) -> None:
        """Pass `news` on, at once or when its time has come."""
        if isinstance(news, ModelChanged) and news.trigger in (Trigger.SLEPT, Trigger.EXITED):
            departure = self._departure(news)
            if departure is not None:
                name = f"{news.model}#{news.generation} gives its memory back"
                self._background.spawn(self._settle(news, departure), name=name)
                return
        self._deliver(news)

    def _departure(self, news: ModelChanged) -> Departure | None:
        """Return what is to come back; None: nothing that could be late."""
        present = self._watch.present(news.model)
        if self._fleet.closing or present is None:
            return None
        if news.trigger is Trigger.SLEPT and self._watch.is_coming(news.model):
            return None  # a wake that was refused: it is asleep as before
        held = {d: size for d, size in present.held.items() if d in self._watch.capacity}
        gpus = {device: size for device, size in held.items() if device != HOST}
        if not gpus and news.trigger is Trigger.EXITED:
            return None  # what a process had of RAM ends with it
        awaited = gpus or held
        return Departure(news.model, awaited, present.look) if awaited else None

    async def _settle(self, news: ModelChanged, departure: Departure) -> None:
        self._left.add(departure.model)
        try:
            await self._await_memory(departure)
        finally:
            self._left.discard(departure.model)
            self._deliver(news)

    async def _await_memory(self, departure: Departure) -> None:
        deadline = self._clock() + self.timeout_s
        while True:
            picture = await self._watch.look()
            missing = _missing(departure, picture, self._left)
            if _is_hidden(departure, picture):
                deadline = self._clock() + self.timeout_s
            if not missing or self._clock() >= deadline or self._fleet.closing:
                break
            await asyncio.sleep(_POLL_S)
        for device, size in missing.items():
            logger.warning(
                "model %s: %s of %s didn't come back within %g s (memory.settleTimeout), "
                "and count as other programs' now",
                departure.model,
                size_text(size),
                device,
                self.timeout_s,
            )
        self._watch.gone(departure.model, missing)


def _missing(departure: Departure, now: Picture, left: Collection[str]) -> dict[str, int]:
    """Return the bytes a device that haven't come back; what can't be seen now isn't missed.

    `left` are all models whose memory is on its way back.
    """
    missing = {}
    for device, held in departure.held.items():
        if device == HOST:
            stays, may_stay = _in_ram(departure.model, now.look), held * _MAY_STAY_IN_RAM
        else:
            stays, may_stay = _on_gpu(device, departure, now, left), held * _MAY_STAY
        if stays > max(may_stay, _NOISE_BYTES):
            missing[device] = stays
    return missing


def _is_hidden(departure: Departure, now: Picture) -> bool:
    """Whether somebody is on the way in, so that it can't be told what has come back.

    That is so where a driver doesn't tell bytes by process: one takes while the other gives.
    """
    readings = (now.look.devices.get(device) for device in departure.held if device != HOST)
    return bool(now.where.coming) and any(one and one.processes is None for one in readings)


def _in_ram(model: str, now: Look) -> int:
    """By the process alone: paging out leaves copies behind, which system-wide figures count.

    Pages of files may stay, where another process has them mapped, or they aren't ours to drop:
    whoever needs the room gets it.
    """
    return taken_bytes(now.trees.get(model, Tree()).usage)


def _on_gpu(device: str, departure: Departure, now: Picture, left: Collection[str]) -> int:
    look, attributed = now.look, now.attributed
    reading = look.devices.get(device)
    if reading is None or device in look.stale:
        return 0
    if reading.processes is None:
        there = (now.where.up | now.where.leaving) - set(left)
        ours = sum(attributed.held.get(model, {}).get(device, 0) for model in there)
        return reading.used_bytes - attributed.others.get(device, 0) - ours
    unlisted = unlisted_bytes(reading)
    usual = attributed.unlisted.get(device, unlisted)
    return unlisted - usual + _still_listed(departure, reading, look)


def _still_listed(departure: Departure, reading: Reading, now: Look) -> int:
    """What processes that have ended are still said to hold; one that sleeps may keep a little."""
    ended = set(departure.then.trees.get(departure.model, Tree()).pids)
    ended -= set(now.trees.get(departure.model, Tree()).pids)
    return sum((reading.processes or {}).get(pid, 0) for pid in ended)
