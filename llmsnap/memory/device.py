"""Devices that models live on, and what is read of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


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
