"""One look at everything that models may hold memory of: RAM, swap, GPUs, and their processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from llmsnap.memory.device import NO_DRIVER, MemoryProbe, Reading, Readings
from llmsnap.memory.host import Host
from llmsnap.memory.kernel import Usage


@dataclass(frozen=True, slots=True)
class Tree:
    """The living processes of one model, and what they hold of RAM and swap."""

    pids: tuple[int, ...] = ()
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen at one moment."""

    devices: Mapping[str, Reading] = field(default_factory=dict)
    """By name. GPUs that can't be read now are missing, or are what was last known of them."""
    trees: Mapping[str, Tree] = field(default_factory=dict)
    """By model."""
    stale: frozenset[str] = frozenset()
    """Devices of which this is old news: decide nothing on them."""
    faults: tuple[str, ...] = ()
    """Why something can't be read, in words for the operator."""


_NVML: Final = "libnvidia-ml.so.1"


class NoGpus:
    """Stands for GPUs where there is no driver to ask."""

    async def read(self) -> Readings:
        """Return that there are none, and why; that is no fault of the machine."""
        return Readings(fault=NO_DRIVER)

    async def aclose(self) -> None:
        """Nothing is held open."""


class Machine:
    """Looks at a machine."""

    def __init__(self, host: Host, gpus: MemoryProbe) -> None:
        self.host = host
        self.gpus = gpus

    @classmethod
    def here(cls, clock: Callable[[], float]) -> Machine:
        """Return this machine; what reads GPUs is imported only where there is a driver."""
        gpus: MemoryProbe = NoGpus()
        if _has_library(_NVML):
            from llmsnap.memory.nvml import NvmlProbe

            gpus = NvmlProbe(clock=clock)
        return cls(Host(clock=clock), gpus)

    async def look(self, roots: Mapping[str, int]) -> Look:
        """Return all devices, and the trees of processes below `roots`, which are pids by model."""
        host, gpus, trees = await asyncio.gather(
            self.host.read(), self.gpus.read(), asyncio.to_thread(self.trees, roots)
        )
        faults = (host.fault, *host.notes)
        if not isinstance(self.gpus, NoGpus):
            faults += (gpus.fault, *gpus.notes)
        return Look(
            devices={reading.device: reading for reading in (*host.devices, *gpus.devices)},
            trees=trees,
            stale=frozenset(reading.device for reading in gpus.devices if gpus.stale),
            faults=tuple(filter(None, faults)),
        )

    async def pss_bytes(self, trees: Mapping[str, Tree]) -> dict[str, int]:
        """Return by model what `trees` hold of RAM, of shared pages only their part; it is slow."""
        return await asyncio.to_thread(
            lambda: {model: self.host.pss_bytes(tree.pids) for model, tree in trees.items()}
        )

    def trees(self, roots: Mapping[str, int]) -> dict[str, Tree]:
        """Return the processes below `roots`; a model whose process is gone has none."""
        if not roots:
            return {}
        below = self.host.trees(roots.values())
        return {
            model: Tree(below[pid], self.host.usage(below[pid])) for model, pid in roots.items()
        }

    async def aclose(self) -> None:
        """Let go of the GPUs' driver."""
        await self.gpus.aclose()


def _has_library(name: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
