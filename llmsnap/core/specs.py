"""What the scheduler is told of each model, out of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from llmsnap.config.memory import declared_need
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.core.messages import ModelSpec, Schedule

_START_S: Final = 2.0
_LOAD_BYTES_PER_S: Final = 1024**3
_HEAD_START_S: Final = 5.0
"""What one step of `priority` counts as: as long as `fairAfter`."""


def specs_for(config: Config) -> tuple[list[ModelSpec], dict[str, int]]:
    """Return a spec a model, and the capacity a device.

    Without capacities (`memory.mode: off`, or no `memory.devices`) memory is nobody's concern, and
    groups alone decide. With them, a model that declares nothing has an unknown need: it loads
    alone.
    """
    capacity = dict(config.memory.devices) if config.memory.mode == "auto" else {}
    priority = config.routing.scheduler.settings.fifo.priority
    specs = [
        _spec(name, model, capacity, _HEAD_START_S * priority.get(name, 0))
        for name, model in config.models.items()
    ]
    return specs, capacity


def schedule_for(config: Config) -> Schedule:
    """Return the scheduler's settings."""
    schedule = config.schedule
    return Schedule(
        fair_after_s=schedule.fair_after_s,
        preempt_after_s=schedule.preempt_after_s,
        hold_s=schedule.hold_s,
        max_wait_s=schedule.max_wait_s,
    )


def _spec(
    name: str, model: ModelConfig, capacity: Mapping[str, int], head_start_s: float
) -> ModelSpec:
    declared = declared_need(model, capacity) if capacity else {}
    need = None
    if declared is not None:
        need = {device: size for device, size in declared.items() if device in capacity}
    return ModelSpec(
        name=name,
        devices=tuple(capacity if need is None else need),
        need=need,
        ability_follows=model.sleep_mode != "off",
        pinned=model.pinned,
        head_start_s=head_start_s,
        concurrency_limit=max(0, model.concurrency_limit),
        ttl_s=model.ttl_s or inf,
        sleep_after_s=model.sleep_after_s or inf,
        min_awake_s=model.min_awake_s,
        time_slice_s=model.time_slice_s,
        round_trip_s=_START_S + sum((need or capacity).values()) / _LOAD_BYTES_PER_S,
    )
