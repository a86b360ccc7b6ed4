"""What the scheduler is told out of the configuration."""

from __future__ import annotations

from math import inf

import pytest

from llmsnap.config.schema import Config, MemoryConfig, ModelConfig, ScheduleConfig
from llmsnap.core.messages import ModelSpec, Schedule
from llmsnap.core.specs import schedule_for, specs_for
from tests.core.play import GIB


def spec(model: ModelConfig, *, mode: str = "auto", **devices: int) -> ModelSpec:
    """The spec of one model on a machine with these budgets in GiB."""
    budgets = {device: size * GIB for device, size in devices.items()}
    memory = MemoryConfig(mode="off" if mode == "off" else "auto", devices=budgets)
    (only,), _ = specs_for(Config(models={"m": model}, memory=memory))
    return only


def test_what_is_declared_is_what_it_needs() -> None:
    """`ram` is about the host, `vram` about the GPU that has a budget."""
    model = ModelConfig(cmd="x", ram_bytes=2 * GIB, vram=8 * GIB)
    one = spec(model, host=32, gpu1=24)
    assert one.need == {"host": 2 * GIB, "gpu1": 8 * GIB}
    assert one.devices == ("host", "gpu1")


def test_vram_is_on_the_gpu_that_the_model_sees() -> None:
    """The environment names it; `config.memory` says how."""
    model = ModelConfig(cmd="x", vram=8 * GIB, env=("CUDA_VISIBLE_DEVICES=1",))
    assert spec(model, gpu0=24, gpu1=24).need == {"gpu1": 8 * GIB}


def test_vram_by_device() -> None:
    """A size a device is taken as it is; devices without a budget are nobody's concern."""
    model = ModelConfig(cmd="x", vram={"gpu0": GIB, "gpu1": 2 * GIB, "gpu7": 3 * GIB})
    assert spec(model, gpu0=24, gpu1=24).need == {"gpu0": GIB, "gpu1": 2 * GIB}


def test_memory_of_a_kind_that_has_no_budget_is_no_concern() -> None:
    """The file limits the host only: a model on the GPU loads beside everybody."""
    one = spec(ModelConfig(cmd="x", vram=8 * GIB), host=16)
    assert (one.need, one.devices) == ({}, ())


def test_a_model_that_declares_nothing_loads_alone() -> None:
    """Its need isn't known, on no device."""
    one = spec(ModelConfig(cmd="x"), host=16, gpu0=24)
    assert (one.need, one.devices) == (None, ("host", "gpu0"))


@pytest.mark.parametrize(("mode", "devices"), [("auto", {}), ("off", {"gpu0": 24})])
def test_without_capacities_memory_is_nobodys_concern(mode: str, devices: dict[str, int]) -> None:
    """Declared or not, groups alone decide."""
    for model in (ModelConfig(cmd="x"), ModelConfig(cmd="x", vram=8 * GIB)):
        one = spec(model, mode=mode, **devices)
        assert (one.need, one.devices) == ({}, ())
    _, capacity = specs_for(Config(memory=MemoryConfig(mode="off", devices={"gpu0": 1})))
    assert capacity == {}


def test_capacities_are_the_budgets() -> None:
    """As the file has them."""
    _, capacity = specs_for(Config(memory=MemoryConfig(devices={"host": 600, "gpu0": 24})))
    assert capacity == {"host": 600, "gpu0": 24}


def test_limits_and_pins() -> None:
    """Zero means never, or no limit, as the file has it; less than zero too."""
    one = spec(ModelConfig(cmd="x"))
    assert (one.ttl_s, one.concurrency_limit, one.pinned) == (inf, 0, False)
    assert (one.min_awake_s, one.time_slice_s) == (None, None)
    model = ModelConfig(
        cmd="x", ttl_s=60, concurrency_limit=3, pinned=True, min_awake_s=0.0, time_slice_s=5.0
    )
    one = spec(model)
    assert (one.ttl_s, one.concurrency_limit, one.pinned) == (60, 3, True)
    assert (one.min_awake_s, one.time_slice_s) == (0, 5)
    assert spec(ModelConfig(cmd="x", concurrency_limit=-1)).concurrency_limit == 0


def test_the_first_guess_of_a_round_trip_follows_the_size() -> None:
    """A big model takes longer to bring back; one of unknown size as long as the largest."""
    small = spec(ModelConfig(cmd="x", vram=1 * GIB), gpu0=24)
    big = spec(ModelConfig(cmd="x", vram=20 * GIB), gpu0=24)
    unknown = spec(ModelConfig(cmd="x"), gpu0=24)
    assert [one.round_trip_s for one in (small, big, unknown)] == [3, 22, 26]


def test_the_schedule() -> None:
    """Every setting is passed on."""
    config = Config(
        schedule=ScheduleConfig(fair_after_s=1, preempt_after_s=2, hold_s=3, max_wait_s=4)
    )
    assert schedule_for(config) == Schedule(
        fair_after_s=1, preempt_after_s=2, hold_s=3, max_wait_s=4
    )
    assert schedule_for(Config()) == Schedule()
