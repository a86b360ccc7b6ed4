"""Builds what keeps the memory books: what there is for models at the start, and who watches it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from llmsnap.config.engine import is_llama_server
from llmsnap.config.memory import HOST
from llmsnap.config.quantities import size_text
from llmsnap.config.schema import Config
from llmsnap.core.messages import ModelSpec
from llmsnap.core.specs import informed, specs_for
from llmsnap.memory.capacity import SWAP, capacities
from llmsnap.memory.device import Reading
from llmsnap.memory.fitting import Fit, fit_of
from llmsnap.memory.footprints import Figure, Footprints, Keeps, Source, Subject
from llmsnap.memory.gguf import Estimate, estimate_for
from llmsnap.memory.identity import Command
from llmsnap.memory.machine import Look, Machine
from llmsnap.memory.unmeasured import unmeasured_gpu
from llmsnap.runtime.devices import Survey
from llmsnap.runtime.health import Prober
from llmsnap.runtime.lacks import Lacks, lacks_of
from llmsnap.runtime.needs import Needs
from llmsnap.runtime.plan import Plan
from llmsnap.runtime.settling import Settling
from llmsnap.runtime.supervisor import Supervisor
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.watch import Watch
from llmsnap.sleep.eligibility import visible_gpus

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 2.0
"""How long the start waits for what is known of models: one that isn't known yet loads alone."""
_ONE_AT_A_TIME: Final = (
    "memory of %s can't be measured, so one model is up at a time; write what there is under "
    "memory.devices, and what each model takes as its vram"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The books, kept up to date."""

    needs: Needs
    watch: Watch
    settling: Settling
    """Takes the runners' reports, and holds some of them back until memory is shown free."""
    survey: Survey

    def adopt(self, books: Books) -> None:
        """Keep these books from now on."""
        memory, footprints, capacity = books.config.memory, books.footprints, books.capacity
        self.needs.adopt(footprints, capacity)
        self.watch.adopt(footprints, memory, capacity)
        self.settling.timeout_s = memory.settle_timeout_s
        self.survey.adopt(memory, footprints)


@dataclass(frozen=True, slots=True)
class Books:
    """What the scheduler is told of memory when it begins, and who tells it more."""

    config: Config
    machine: Machine
    footprints: Footprints
    capacity: Mapping[str, int]
    """Bytes a device that models may hold; empty: memory is nobody's concern."""
    bare_specs: list[ModelSpec]
    """What the configuration alone says."""
    lacks: Lacks
    """Which models can't be started as things are on disk, and why."""
    first: Look
    """What was seen before any model was started."""

    @classmethod
    async def open(
        cls,
        config: Config,
        machine: Machine,
        plans: Mapping[str, Plan],
        store: Keeps,
        *,
        asleep_bytes: int,
        before: Books | None = None,
    ) -> Books:
        """Look at the machine, at the models' files, and at what was learned of them in `store`.

        Models that are asleep may take `asleep_bytes` of RAM. What `before` knows is kept.
        """
        look = await machine.look({}) if config.memory.mode == "auto" else Look()
        gpus = [gpu for name, gpu in look.devices.items() if name not in (HOST, SWAP)]
        capacity = _capacity(config, look, gpus, asleep_bytes)
        if before is None or capacity != before.capacity:
            _tell(config, capacity)
        usable = _usable(plans, gpus) if gpus else None
        specs = specs_for(config, capacity, usable)
        footprints = Footprints(
            {spec.name: _subject(config, spec, plans[spec.name]) for spec in specs},
            store,
            estimate=partial(_estimate, config, capacity, plans, usable),
            capacity=lambda: capacity,
        )
        if before is not None:
            footprints.inherit(before.footprints)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await footprints.refresh()
        lacks = await lacks_of(plans.values())
        return cls(config, machine, footprints, capacity, bare_specs=specs, lacks=lacks, first=look)

    @property
    def specs(self) -> list[ModelSpec]:
        """What the scheduler is to know of each model, as far as that is known by now."""
        return [
            replace(
                _informed(spec, self.footprints.figure(spec.name)), lack=self.lacks.get(spec.name)
            )
            for spec in self.bare_specs
        ]

    def keep(
        self,
        supervisor: Supervisor,
        background: Background,
        prober: Prober,
        *,
        log: Callable[[str], bytes],
        clock: Callable[[], float],
    ) -> Kept:
        """Keep them up to date for `supervisor`; `log` returns what a model has printed so far."""
        memory, capacity, footprints = self.config.memory, self.capacity, self.footprints
        needs = Needs(footprints, supervisor, background, prober, log=log, capacity=capacity)
        watch = Watch(self.machine, supervisor, footprints, memory, capacity, self.first)
        settling = Settling(
            watch,
            supervisor,
            background,
            needs.report,
            timeout_s=memory.settle_timeout_s,
            clock=clock,
        )
        for moved in (needs.moved, watch.moved):
            supervisor.watch(moved)
        background.spawn(needs.begin(), name="footprints")
        background.spawn(watch.run(), name="memory watch")
        survey = Survey(watch, memory, self.machine, footprints)
        return Kept(needs=needs, watch=watch, settling=settling, survey=survey)


def _estimate(
    config: Config,
    capacity: Mapping[str, int],
    plans: Mapping[str, Plan],
    usable: Mapping[str, list[str]] | None,
    model: str,
) -> Estimate | None:
    """Return what a model's file says; None for one that isn't configured any more."""
    if model not in plans:
        return None
    gpus = None if usable is None else usable[model]
    return estimate_for(config.models[model], capacity, plans[model].env, gpus=gpus)


def _capacity(
    config: Config, look: Look, gpus: Sequence[Reading], asleep_bytes: int
) -> dict[str, int]:
    """Return the bytes a device that models may hold."""
    capacity = capacities(config.memory, look.devices, asleep_bytes=asleep_bytes)
    if not capacity or config.memory.devices:
        return capacity
    if unmeasured := unmeasured_gpu(nvidia_is_read=bool(gpus)):
        logger.warning(_ONE_AT_A_TIME, unmeasured)
        return {}
    return capacity


def _tell(config: Config, capacity: Mapping[str, int]) -> None:
    """Say in the log what was measured."""
    if capacity and not config.memory.devices:
        there = ", ".join(f"{size_text(size)} of {device}" for device, size in capacity.items())
        logger.info("memory for models: %s", there)


def _usable(plans: Mapping[str, Plan], gpus: Sequence[Reading]) -> dict[str, list[str]]:
    """Return the GPUs that each model's environment lets it use."""
    return {
        model: [gpu.device for gpu in visible_gpus(plan.env, gpus)] for model, plan in plans.items()
    }


def _subject(config: Config, spec: ModelSpec, plan: Plan) -> Subject:
    model = config.models[spec.name]
    own = dict(entry.partition("=")[::2] for entry in model.env)
    return Subject(
        command=Command(argv=plan.argv, env=plan.env, own=own, port=plan.endpoint.port),
        declared=spec.need,
        pinned=spec.pinned,
        fit=fit_of(plan.argv, plan.env) if is_llama_server(model) else Fit.NOTHING,
        guess=spec.estimate,
    )


def _informed(spec: ModelSpec, figure: Figure) -> ModelSpec:
    match figure.source:
        case Source.LEARNED:
            return informed(spec, need=figure.bytes)
        case Source.ESTIMATED:
            return informed(spec, estimate=figure.bytes, certain=figure.certain)
        case _:
            return spec
