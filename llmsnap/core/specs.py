"""What the scheduler is told of each model, out of the configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from llmsnap.config.memory import HOST, declared_need
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.core.messages import ModelSpec
from llmsnap.core.schedule import Schedule

_START_S: Final = 2.0
_LOAD_BYTES_PER_S: Final = 1024**3
_HEAD_START_S: Final = 5.0
"""What one step of `priority` counts as: as long as `fairAfter`."""


def specs_for(
    config: Config,
    capacity: Mapping[str, int],
    usable: Mapping[str, Collection[str]] | None = None,
) -> list[ModelSpec]:
    """Return a spec a model, for a machine with these bytes a device.

    Without capacities memory is nobody's concern, and groups alone decide. With them, a model that
    declares nothing has an unknown need: it loads alone. `usable` names the GPUs that each model's
    environment lets it use, where that is known; None: all may be.
    """
    priority = config.routing.scheduler.settings.fifo.priority
    return [
        replace(
            _spec(name, model, capacity, None if usable is None else usable[name]),
            is_default=name == config.default,
            head_start_s=_HEAD_START_S * priority.get(name, 0),
        )
        for name, model in config.models.items()
    ]


def informed(
    spec: ModelSpec,
    *,
    need: Mapping[str, int] | None = None,
    estimate: Mapping[str, int] | None = None,
    certain: Mapping[str, int] | None = None,
) -> ModelSpec:
    """Return `spec` with what is known besides of what it needs, in bytes a device."""
    size = sum((need or estimate or {}).values())
    return replace(
        spec,
        need=need,
        estimate=estimate,
        certain=certain or {},
        round_trip_s=_guess_s(size) if size else spec.round_trip_s,
    )


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
    name: str,
    model: ModelConfig,
    capacity: Mapping[str, int],
    usable: Collection[str] | None,
) -> ModelSpec:
    devices = [d for d in capacity if d == HOST or usable is None or d in usable]
    need, estimate = _declared(model, devices, spread=usable is not None)
    if not capacity:
        need = {}
    return ModelSpec(
        name=name,
        devices=tuple(devices if need is None else need),
        need=need,
        estimate=estimate,
        ability_follows=model.sleep_mode != "off",
        pinned=model.pinned,
        is_helper=model.class_ == "helper",
        concurrency_limit=max(0, model.concurrency_limit),
        ttl_s=model.ttl_s or inf,
        sleep_after_s=model.sleep_after_s or inf,
        min_awake_s=model.min_awake_s,
        time_slice_s=model.time_slice_s,
        round_trip_s=_guess_s(sum((need or estimate or capacity).values())),
    )


def _guess_s(size: int) -> float:
    """How long a model of so many bytes may take to leave its devices and come back."""
    return _START_S + size / _LOAD_BYTES_PER_S


def _declared(
    model: ModelConfig, devices: Sequence[str], *, spread: bool
) -> tuple[dict[str, int] | None, dict[str, int] | None]:
    """Return what `model` says it needs of each of `devices`, or what can be guessed from it.

    A `vram` without a device is for all GPUs among them if it is to be `spread`, as servers do:
    that they do so evenly is a guess, until it was seen.
    """
    gpus = [device for device in devices if device != HOST]
    if spread and isinstance(model.vram, int) and gpus:
        ram = {} if model.ram_bytes is None or HOST not in devices else {HOST: model.ram_bytes}
        evenly = ram | {gpu: model.vram // len(gpus) for gpu in gpus}
        return (evenly, None) if len(gpus) == 1 else (None, evenly)
    declared = declared_need(model, devices)
    if declared is None:
        return None, None
    return {device: size for device, size in declared.items() if device in devices}, None
