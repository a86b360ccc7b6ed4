"""Devices that models live on, and what is read of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

NO_DRIVER: Final = (
    "there is no NVIDIA driver (libnvidia-ml.so.1 isn't found); install it, "
    "or start the container with `--gpus all`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """How a GPU fares, for showing; None: the driver doesn't tell."""

    utilisation: float | None = None
    """Share of the last moments in which it computed, 0 to 1."""
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    pcie_generation: int | None = None
    """At this moment; an idle link falls back to 1."""
    pcie_width: int | None = None
    pcie_max_generation: int | None = None
    pcie_max_width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One device's memory at one moment, in bytes."""

    device: str
    """`host`, `gpu0`, `gpu1`, …"""
    total_bytes: int
    free_bytes: int
    """What an allocation would see."""
    taken_at: float
    """On the monotonic clock of the one who reads."""
    name: str = ""
    uuid: str = ""
    processes: Mapping[int, int] | None = None
    """Bytes by pid; None: the driver doesn't tell."""
    mig: bool = False
    """Whether the GPU is split into instances; bytes by pid and checkpoints don't work then."""
    reserved_bytes: int | None = None
    """What the driver keeps for itself, which is part of what isn't free; None: not told."""
    vitals: Vitals = Vitals()

    @property
    def used_bytes(self) -> int:
        """Everything that isn't free."""
        return self.total_bytes - self.free_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """All devices of one kind at one moment, or why they can't be read."""

    devices: tuple[Reading, ...] = ()
    fault: str = ""
    """Why nothing could be read, in words for the operator; empty when all went well."""
    notes: tuple[str, ...] = field(default=())
    """What couldn't be read of devices that otherwise answered."""
    stale: bool = False
    """Whether `devices` are old news, because the driver doesn't answer: decide nothing on them."""


class MemoryProbe(Protocol):
    """Anything that can say how full devices are."""

    async def read(self) -> Readings: ...

    async def aclose(self) -> None: ...
