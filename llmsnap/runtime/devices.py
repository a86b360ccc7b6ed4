"""What there is to see of devices: how full they are, who has them, what they are good for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llmsnap.config.schema import MemoryConfig
from llmsnap.memory.capacity import SWAP, reserve_bytes
from llmsnap.memory.device import Reading
from llmsnap.memory.footprints import Footprints
from llmsnap.memory.machine import Machine
from llmsnap.runtime.watch import Watch


class Freshness(StrEnum):
    """Whether a device's figures can be trusted."""

    FRESH = "fresh"
    STALE = "stale"
    """Its driver doesn't answer: these are the last figures."""
    LOST = "lost"
    """It was there, and isn't any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """One device as it was seen last. For showing, never for deciding."""

    reading: Reading
    freshness: Freshness
    capacity_bytes: int | None = None
    """What models may hold of it; None: it is no concern of theirs."""
    reserve_bytes: int | None = None
    """What is left alone of it; None: it has a budget of its own."""
    foreign_bytes: int | None = None
    """What other programs take of the capacity."""
    models: Mapping[str, int] = field(default_factory=dict)
    """What each model holds of it now, awake or not."""


class Survey:
    """What was seen of memory last: all devices, lost ones among them, and what models hold."""

    def __init__(
        self, watch: Watch, config: MemoryConfig, machine: Machine, footprints: Footprints
    ) -> None:
        self.figure = footprints.figure
        self._watch = watch
        self._config = config
        self._machine = machine
        self._seen: dict[str, Reading] = {}

    def adopt(self, config: MemoryConfig, footprints: Footprints) -> None:
        """Go by other settings from now on."""
        self.figure, self._config = footprints.figure, config

    @property
    def faults(self) -> tuple[str, ...]:
        """Why something can't be read, in words for the operator."""
        return self._watch.picture.look.faults

    def devices(self) -> list[DeviceView]:
        """Return them by name: GPUs, `host`, `swap`."""
        self._seen.update(self._watch.picture.look.devices)
        return [self._view(reading) for _, reading in sorted(self._seen.items(), key=_order)]

    def readings(self) -> list[Reading]:
        """Return what was read of devices that answer."""
        return [view.reading for view in self.devices() if view.freshness is Freshness.FRESH]

    def held(self) -> Mapping[str, Mapping[str, int]]:
        """Return the bytes a device, and of swap, that each model holds now."""
        return self._watch.picture.attributed.held

    def held_by(self, model: str) -> Mapping[str, int]:
        """Return what `model` holds of that."""
        return self.held().get(model, {})

    async def pss_bytes(self) -> dict[str, int]:
        """Return what each model holds of RAM, of shared pages only its part; it is slow."""
        return await self._machine.pss_bytes(self._watch.picture.look.trees)

    def _view(self, reading: Reading) -> DeviceView:
        name, look = reading.device, self._watch.picture.look
        if name not in look.devices:
            freshness = Freshness.LOST
        else:
            freshness = Freshness.STALE if name in look.stale else Freshness.FRESH
        capacity = self._watch.capacity.get(name)
        is_measured = capacity is not None and not self._config.devices
        return DeviceView(
            reading=reading,
            freshness=freshness,
            capacity_bytes=capacity,
            reserve_bytes=reserve_bytes(self._config, name) if is_measured else None,
            foreign_bytes=self._watch.foreign.get(name),
            models=dict(self._holders(name)),
        )

    def _holders(self, device: str) -> Iterator[tuple[str, int]]:
        for model, held in sorted(self._watch.picture.attributed.held.items()):
            if held.get(device):
                yield model, held[device]


def _order(item: tuple[str, Reading]) -> tuple[bool, bool, int, str]:
    name = item[0]
    return name == SWAP, not name.startswith("gpu"), len(name), name
