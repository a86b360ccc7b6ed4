"""Tells the scheduler what other programs use, and what its models turn out to need."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from llmsnap.config.memory import HOST
from llmsnap.config.schema import MemoryConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Event, ForeignChanged, ModelView, NeedChanged
from llmsnap.core.slot import COMING, LEAVING
from llmsnap.memory.attribution import Attributed, Attribution, Whereabouts, need_of
from llmsnap.memory.capacity import outside_bytes
from llmsnap.memory.machine import Look

logger = logging.getLogger(__name__)

_BUSY_S: Final = 1.0
_IDLE_S: Final = 5.0
_SOON_S: Final = 0.1
"""After a move: at once would be in the way of those who wait for the model."""
_NOISE_BYTES: Final = 64 * 1024**2
"""Other programs' use changes all the time; the reserve is larger than this."""


class Fleet(Protocol):
    """What it needs of the supervisor."""

    def views(self) -> list[ModelView]: ...

    def pid(self, model: str) -> int | None: ...

    def post(self, event: Event) -> None: ...


class Looks(Protocol):
    """Anything that can look at a machine's memory."""

    async def look(self, roots: Mapping[str, int]) -> Look: ...


class Figure(Protocol):
    """What a model is thought to need."""

    @property
    def bytes(self) -> Mapping[str, int]:
        """A device; none: not known."""
        ...


class Learns(Protocol):
    """Who remembers what models need."""

    def figure(self, model: str) -> Figure:
        """Return the best figure there is."""
        ...

    def saw(self, model: str, held: Mapping[str, int]) -> Mapping[str, int] | None:
        """Take in what an awake model holds a device; return its need if that is another now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Memory as it was seen last, and who held what of it."""

    look: Look = field(default_factory=Look)
    attributed: Attributed = field(default_factory=Attributed)
    where: Whereabouts = field(default_factory=Whereabouts)


@dataclass(frozen=True, slots=True)
class Presence:
    """A model when it was last seen on its devices."""

    held: Mapping[str, int]
    """Bytes a device."""
    look: Look
    """What was seen then of everything."""


class Watch:
    """Looks at the machine from time to time, and whenever a model moves.

    `capacity` is bytes a device; what has none is no concern of the scheduler's. `first` is what
    was seen before any model was started.
    """

    def __init__(
        self,
        machine: Looks,
        fleet: Fleet,
        learns: Learns,
        config: MemoryConfig,
        capacity: Mapping[str, int],
        first: Look | None = None,
    ) -> None:
        self.picture = Picture()
        self.capacity = capacity
        self.foreign = dict.fromkeys(capacity, 0)
        """What the scheduler was told that other programs take of each capacity."""
        self._machine = machine
        self._fleet = fleet
        self._learns = learns
        self._config = config
        self._attribution = Attribution()
        self._attribution.of(first or Look(), Whereabouts())
        self._present: dict[str, Presence] = {}
        self._left: set[str] = set()
        self._faults: frozenset[str] = frozenset()
        self._moved = asyncio.Event()
        self._turn = asyncio.Lock()

    def adopt(self, learns: Learns, config: MemoryConfig, capacity: Mapping[str, int]) -> None:
        """Go by other settings from now on."""
        self._learns, self._config, self.capacity = learns, config, capacity
        self.foreign = {device: self.foreign.get(device, 0) for device in capacity}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self._moved.clear()
            try:
                await self.look()
            except Exception:  # a task's root: what can't be seen now may be in a second
                logger.exception("looking at the memory failed")
            with suppress(TimeoutError):
                async with asyncio.timeout(_BUSY_S if self._is_busy() else _IDLE_S):
                    await self._moved.wait()
                    await asyncio.sleep(_SOON_S)

    def moved(self, _: ModelView, __: State) -> None:
        """Take in that a model has changed its state, and look soon."""
        self._moved.set()

    def present(self, model: str) -> Presence | None:
        """Return how `model` was last seen on its devices; None: it wasn't, or it has left."""
        return self._present.get(model)

    def is_coming(self, model: str) -> bool:
        """Whether `model` is on its way in."""
        return any(v.state in COMING for v in self._fleet.views() if v.model == model)

    async def look(self) -> Picture:
        """Look once, tell the scheduler what is new, and return what was seen."""
        async with self._turn:
            # Before it looks: who comes meanwhile has hardly taken anything yet.
            where = self._whereabouts()
            look = await self._machine.look(self._roots())
            return self._take(look, where)

    def gone(self, model: str, lost: Mapping[str, int]) -> None:
        """Take in that `model` has left its devices, whatever the scheduler knows so far.

        What it still holds is counted as other programs' from now on, as are the bytes a device
        that it `lost`.
        """
        self._left.add(model)
        self._present.pop(model, None)
        self._attribution.lose(lost)
        self._take(self.picture.look, self.picture.where.less(model))

    def _take(self, look: Look, where: Whereabouts) -> Picture:
        attributed = self._attribution.of(look, where, self._thought())
        self.picture = Picture(look=look, attributed=attributed, where=where)
        self._note_faults(look)
        self._remember(look, attributed, where)
        self._tell_foreign(look, attributed)
        self._tell_needs(look, attributed, where)
        return self.picture

    def _roots(self) -> dict[str, int]:
        pids = {view.model: self._fleet.pid(view.model) for view in self._fleet.views()}
        return {model: pid for model, pid in pids.items() if pid is not None}

    def _whereabouts(self) -> Whereabouts:
        views = self._fleet.views()
        # Only until the scheduler has heard of it: the next moment it may be on its way in again.
        self._left &= {view.model for view in views if view.state in LEAVING}
        views = [view for view in views if view.model not in self._left]
        return Whereabouts(
            up=frozenset(view.model for view in views if view.state is State.READY),
            coming=frozenset(view.model for view in views if view.state in COMING),
            leaving=frozenset(view.model for view in views if view.state in LEAVING),
        )

    def _thought(self) -> dict[str, Mapping[str, int]]:
        """Return what models are thought to need, by the best figure there is."""
        return {view.model: self._learns.figure(view.model).bytes for view in self._fleet.views()}

    def _remember(self, look: Look, attributed: Attributed, where: Whereabouts) -> None:
        """Note what there is to come back.

        Of a model that may still be taking memory, and where it can't be seen, that is what it is
        thought to need.
        """
        blind = self.capacity.keys() - (look.devices.keys() - look.stale)
        for model in where.up | where.coming:
            held = dict(attributed.held.get(model, {}))
            devices = self.capacity.keys() if model in where.coming else blind
            thought = self._learns.figure(model).bytes
            for device in devices & thought.keys() - {HOST}:
                held[device] = max(held.get(device, 0), thought[device])
            if held:
                self._present[model] = Presence(held, look)

    def _tell_foreign(self, look: Look, attributed: Attributed) -> None:
        """Tell what others take of the capacities."""
        for device, capacity in self.capacity.items():
            reading = look.devices.get(device)
            if reading is None or device in look.stale or device not in attributed.others:
                continue
            outside = outside_bytes(self._config, reading, capacity)
            used = max(0, attributed.others[device] - outside)
            before = self.foreign[device]
            if abs(used - before) >= _NOISE_BYTES or (before and not used):
                self.foreign[device] = used
                self._fleet.post(ForeignChanged(device, used))

    def _tell_needs(self, look: Look, attributed: Attributed, where: Whereabouts) -> None:
        readable = look.devices.keys() - look.stale
        if not self.capacity.keys() <= readable:
            return  # what can't be seen can't be learned
        for model in where.up - attributed.unclear:
            tree = look.trees.get(model)
            if tree is None or not tree.pids:
                continue
            need = self._learns.saw(model, need_of(attributed.held[model], tree.usage))
            if need is not None:
                self._fleet.post(NeedChanged(model, need))

    def _note_faults(self, look: Look) -> None:
        faults = frozenset(look.faults)
        for fault in sorted(faults - self._faults):
            logger.warning("memory: %s", fault)
        if self._faults and not faults:
            logger.info("memory: everything can be read again")
        self._faults = faults

    def _is_busy(self) -> bool:
        return any(view.waiting or view.state in COMING | LEAVING for view in self._fleet.views())
