"""What drivers need to know of memory, declared by its users: `app` hands in who can say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class GpuMemory(Protocol):
    """One GPU's memory at one moment, in bytes."""

    @property
    def device(self) -> str:
        """`gpu0`, `gpu1`, … in the order of the PCI bus."""
        ...

    @property
    def uuid(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def free_bytes(self) -> int:
        """What an allocation would see."""
        ...

    @property
    def taken_at(self) -> float:
        """When, on the clock that its reader shares with the drivers."""
        ...

    @property
    def processes(self) -> Mapping[int, int] | None:
        """Bytes by pid; None: not known."""
        ...

    @property
    def mig(self) -> bool:
        """Whether the GPU is split into instances."""
        ...


class GpuReadings(Protocol):
    """All GPUs at one moment, or why they can't be read."""

    @property
    def devices(self) -> Sequence[GpuMemory]: ...

    @property
    def fault(self) -> str:
        """Why nothing could be read; empty when all went well."""
        ...

    @property
    def stale(self) -> bool:
        """Whether this is old news that nothing may be decided on."""
        ...


class FreeMemory(Protocol):
    """Anything that can say how full the GPUs are now."""

    async def read(self) -> GpuReadings: ...


class HostRoom(Protocol):
    """Anything that can say how much more RAM a process may take."""

    async def room_for(self, pid: int) -> int:
        """Return the bytes: the least of what the machine and each cgroup of `pid` have left."""
        ...
