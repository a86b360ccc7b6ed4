"""What `llmsnap check` says of memory: an estimate a model, and what could be better."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from llmsnap.config.memory import HOST, declared_need
from llmsnap.config.quantities import size_text
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.doctor.conversations import advice_on_conversations
from llmsnap.errors import ModelFileError
from llmsnap.memory.advice import advice_for
from llmsnap.memory.capacity import SWAP
from llmsnap.memory.gguf import Estimate, estimate_for
from llmsnap.memory.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """What the files and commands of all models tell."""

    found: Mapping[str, Estimate]
    """By model; those without a file that is here aren't in it."""
    advice: tuple[str, ...]
    faults: tuple[str, ...]
    """Files that can't be used."""


def estimates_of(config: Config, environ: Mapping[str, str]) -> Estimates:
    """Return what the models need, on the devices of the configuration, or of this machine."""
    devices = config.memory.devices or asyncio.run(_devices_here())
    found: dict[str, Estimate] = {}
    faults: list[str] = []
    for id_, model in config.models.items():
        try:
            estimate = estimate_for(model, devices, environ)
        except (ModelFileError, OSError) as error:
            faults.append(f"models.{id_}: {error}")
        else:
            if estimate is not None:
                found[id_] = estimate
    pairs = {id_: (found[id_], _declared(config.models[id_], devices)) for id_ in found}
    talks = _together(advice_on_conversations(config, environ))
    advice = (*advice_for(pairs, devices.get(HOST)), *talks)
    return Estimates(found=found, advice=advice, faults=tuple(faults))


def _together(advice: Iterable[tuple[str, str]]) -> list[str]:
    """Return each sentence once, behind the models that it is about."""
    about: dict[str, list[str]] = {}
    for id_, sentence in advice:
        about.setdefault(sentence, []).append(id_)
    return [f"{', '.join(ids)}: {sentence}" for sentence, ids in about.items()]


def document(estimate: Estimate) -> dict[str, Any]:
    """Return `estimate` for `check --json`, in bytes."""
    return {
        "devices": {
            device: {"total": parts.total, **asdict(parts)}
            for device, parts in estimate.parts.items()
        },
        "mayGrowBy": dict(estimate.growth),
        "certain": dict(estimate.certain),
        "fittedWithout": list(estimate.unset),
        "notes": list(estimate.notes),
    }


def in_words(estimate: Estimate) -> str:
    """Return what is estimated a device, for a table."""
    return ", ".join(f"{device} ~{size_text(size)}" for device, size in estimate.need.items())


def _declared(model: ModelConfig, devices: Collection[str]) -> Mapping[str, int] | None:
    try:
        return declared_need(model, devices)
    except ValueError:  # of several GPUs it doesn't say which
        return {}


async def _devices_here() -> dict[str, int]:
    machine = Machine.here(time.monotonic)
    try:
        look = await machine.look({})
    finally:
        await machine.aclose()
    return {name: it.total_bytes for name, it in look.devices.items() if name != SWAP}
