"""What the scheduler is told out of the configuration."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from llmsnap.config.schema import Config, ModelConfig, ScheduleConfig
from llmsnap.core.messages import ModelSpec
from llmsnap.core.schedule import Schedule
from llmsnap.core.specs import schedule_for, specs_for
from tests.core.play import GIB


def spec(model: ModelConfig, *, usable: Collection[str] | None = None, **devices: int) -> ModelSpec:
    """The spec of one model on a machine with these capacities in GiB."""
    capacity = {device: size * GIB for device, size in devices.items()}
    seen = None if usable is None else {"m": usable}
    (only,) = specs_for(Config(models={"m": model}), capacity, seen)
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


def test_without_capacities_memory_is_nobodys_concern() -> None:
    """Declared or not, groups alone decide."""
    for model in (ModelConfig(cmd="x"), ModelConfig(cmd="x", vram=8 * GIB)):
        one = spec(model)
        assert (one.need, one.estimate, one.devices) == ({}, None, ())


def test_a_model_of_unknown_need_is_alone_on_what_it_can_use() -> None:
    """RAM, and the GPUs that its environment shows."""
    one = spec(ModelConfig(cmd="x"), usable=["gpu1"], host=16, gpu0=24, gpu1=24)
    assert (one.need, one.devices) == (None, ("host", "gpu1"))


def test_vram_is_on_the_only_gpu_that_the_model_can_use() -> None:
    """However its environment says which one."""
    model = ModelConfig(cmd="x", vram=8 * GIB, ram_bytes=GIB)
    one = spec(model, usable=["gpu1"], host=16, gpu0=24, gpu1=24)
    assert one.need == {"host": GIB, "gpu1": 8 * GIB}


def test_vram_without_a_device_is_spread_over_the_gpus_as_a_guess() -> None:
    """Servers do so, though not quite evenly: it is learned when it is up."""
    one = spec(ModelConfig(cmd="x", vram=8 * GIB), usable=["gpu0", "gpu1"], gpu0=24, gpu1=24)
    assert (one.need, one.devices) == (None, ("gpu0", "gpu1"))
    assert one.estimate == {"gpu0": 4 * GIB, "gpu1": 4 * GIB}
    assert one.round_trip_s == 10


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
