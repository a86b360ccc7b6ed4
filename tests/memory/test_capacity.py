"""How much of each device is for models."""

from __future__ import annotations

from llmsnap.config.schema import MemoryConfig
from llmsnap.memory.capacity import capacities, outside_bytes, reserve_bytes
from tests.memory.looks import GIB, gib, in_gib, look, reading


def shared(config: MemoryConfig, *, asleep: float = 0.0, **totals: float) -> dict[str, float]:
    """The capacities of a machine with devices of these sizes, all in GiB."""
    devices = look(*(reading(name, 1, total=size) for name, size in totals.items())).devices
    return in_gib(capacities(config, devices, asleep_bytes=gib(asleep)))


def test_budgets_count_as_they_stand() -> None:
    """Nothing is taken off them, whatever the machine has."""
    budgets = MemoryConfig(devices={"host": 3 * GIB})
    assert shared(budgets, host=16, gpu0=24) == {"host": 3}
    off = MemoryConfig(mode="off", devices={"host": 3 * GIB})
    assert shared(off, host=16) == {}


def test_without_budgets_it_is_what_there_is_less_the_reserve() -> None:
    """On a machine without GPUs, models live in RAM."""
    assert shared(MemoryConfig(), host=16, swap=4, asleep=8) == {"host": 15}


def test_beside_gpus_ram_is_shared_with_what_sleeps() -> None:
    """Its budget and that of models that are awake are disjoint."""
    found = shared(MemoryConfig(), host=64, gpu0=24, gpu1=80, asleep=32)
    assert found == {"host": 31, "gpu0": 23.5, "gpu1": 79.5}


def test_the_reserve_can_be_set() -> None:
    """For all devices, or for some."""
    assert shared(MemoryConfig(reserve=2 * GIB), host=16, gpu0=24) == {"host": 14, "gpu0": 22}
    some = MemoryConfig(reserve={"gpu0": GIB})
    assert shared(some, host=16, gpu0=24, gpu1=24) == {"host": 15, "gpu0": 23, "gpu1": 23.5}
    assert reserve_bytes(some, "gpu0") == GIB


def test_others_may_use_what_is_outside_of_a_budget() -> None:
    """Of 16 GiB, 3 are for models and 1 is reserved; where all was measured, nothing is left."""
    config = MemoryConfig(devices={"host": 3 * GIB})
    assert outside_bytes(config, reading("host", 0, total=16), 3 * GIB) == 12 * GIB
    assert outside_bytes(MemoryConfig(), reading("host", 0, total=16), 15 * GIB) == 0
    assert outside_bytes(config, reading("host", 0, total=2), 3 * GIB) == 0
