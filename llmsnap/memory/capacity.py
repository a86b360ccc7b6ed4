"""How much of each device is for models: what the file says, or what is measured less a reserve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from llmsnap.config.memory import HOST
from llmsnap.config.schema import MemoryConfig
from llmsnap.memory.device import Reading

SWAP: Final = "swap"
"""Is read like a device, but no model lives there."""
_GPU_RESERVE: Final = 512 * 1024**2
_HOST_RESERVE: Final = 1024**3


def reserve_bytes(config: MemoryConfig, device: str) -> int:
    """Return what is left alone of a device that is measured."""
    usual = _HOST_RESERVE if device == HOST else _GPU_RESERVE
    if isinstance(config.reserve, Mapping):
        return config.reserve.get(device, usual)
    return usual if config.reserve is None else config.reserve


def capacities(
    config: MemoryConfig, devices: Mapping[str, Reading], *, asleep_bytes: int
) -> dict[str, int]:
    """Return the bytes a device that models may hold; empty: memory is nobody's concern.

    Budgets out of the file count as they stand. Without them it is what `devices` have, less the
    reserve; and where there are GPUs, RAM is shared with the models that are asleep, which may take
    `asleep_bytes` of it.
    """
    if config.mode == "off":
        return {}
    if config.devices:
        return dict(config.devices)
    measured = {name: reading for name, reading in devices.items() if name != SWAP}
    shared = asleep_bytes if measured.keys() - {HOST} else 0
    return {
        name: max(
            0,
            reading.total_bytes - reserve_bytes(config, name) - (shared if name == HOST else 0),
        )
        for name, reading in measured.items()
    }


def outside_bytes(config: MemoryConfig, reading: Reading, capacity: int) -> int:
    """Return how much others may use of a device before it is at the expense of models.

    That is what remains beside the capacity and the reserve: nothing where the capacity itself was
    measured, much where the file gives models a budget within the machine.
    """
    reserve = reserve_bytes(config, reading.device)
    return max(0, reading.total_bytes - reserve - capacity)
