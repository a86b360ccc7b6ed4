"""Builds what keeps the memory books: what there is for models at the start, and who watches it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from llmsnap.config.memory import HOST
from llmsnap.config.quantities import size_text
from llmsnap.config.schema import Config
from llmsnap.core.messages import Event, ModelSpec
from llmsnap.core.specs import specs_for
from llmsnap.memory.capacity import SWAP, capacities
from llmsnap.memory.device import Reading
from llmsnap.memory.fitting import fit_of
from llmsnap.memory.footprints import Footprints, Keeps, Subject
from llmsnap.memory.gguf import Estimate, estimate_for
from llmsnap.memory.identity import Command
from llmsnap.memory.machine import Look, Machine
from llmsnap.memory.unmeasured import unmeasured_gpu
from llmsnap.runtime.devices import Devices
from llmsnap.runtime.health import Prober
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

    report: Callable[[Event], None]
    """Takes the runners' reports, and holds some of them back until memory is shown free."""
    devices: Devices
    footprints: Footprints


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What the scheduler is told of memory when it begins."""

    config: Config
    machine: Machine
    plans: Mapping[str, Plan]
    capacity: Mapping[str, int]
    """Bytes a device that models may hold; empty: memory is nobody's concern."""
    specs: Mapping[str, ModelSpec]

    @classmethod
    async def open(
        cls, config: Config, machine: Machine, plans: Mapping[str, Plan], *, asleep_bytes: int
    ) -> Books:
        """Look at the machine once, and say so in the log.

        Models that are asleep may take `asleep_bytes` of its RAM.
        """
        look = await machine.look({}) if config.memory.mode == "auto" else Look()
        gpus = [gpu for name, gpu in look.devices.items() if name not in (HOST, SWAP)]
        capacity = capacities(config.memory, look.devices, asleep_bytes=asleep_bytes)
        if capacity and not config.memory.devices:
            if unmeasured := unmeasured_gpu(nvidia_is_read=bool(gpus)):
                logger.warning(_ONE_AT_A_TIME, unmeasured)
                capacity = {}
            else:
                there = ", ".join(f"{size_text(n)} of {d}" for d, n in capacity.items())
                logger.info("memory for models: %s", there)
        specs = specs_for(config, capacity, _usable(plans, gpus) if gpus else None)
        return cls(
            config=config,
            machine=machine,
            plans=plans,
            capacity=capacity,
            specs={spec.name: spec for spec in specs},
        )

    async def keep(
        self,
        supervisor: Supervisor,
        background: Background,
        prober: Prober,
        store: Keeps,
        log: Callable[[str], bytes],
        clock: Callable[[], float],
    ) -> Kept:
        """Keep them up to date for `supervisor`; `log` returns what a model has printed so far."""
        footprints = Footprints(
            {model: self._subject(model) for model in self.plans},
            store,
            estimate=self._estimate,
            capacity=lambda: self.capacity,
        )
        needs = Needs(footprints, supervisor, background, prober, log=log, capacity=self.capacity)
        watch = Watch(self.machine, supervisor, footprints, self.config.memory, self.capacity)
        timeout_s = self.config.memory.settle_timeout_s
        settling = Settling(
            watch, supervisor, background, needs.report, timeout_s=timeout_s, clock=clock
        )
        supervisor.watch(needs.moved)
        supervisor.watch(watch.moved)
        begun = background.spawn(needs.begin(), name="footprints")
        background.spawn(watch.run(), name="memory watch")
        await asyncio.wait({begun}, timeout=_PATIENCE_S)
        devices = Devices(watch, self.config.memory)
        return Kept(report=settling.report, devices=devices, footprints=footprints)

    def _subject(self, model: str) -> Subject:
        plan, spec = self.plans[model], self.specs[model]
        own = dict(entry.partition("=")[::2] for entry in self.config.models[model].env)
        return Subject(
            command=Command(argv=plan.argv, env=plan.env, own=own, port=plan.endpoint.port),
            declared=spec.need,
            pinned=spec.pinned,
            fit=fit_of(plan.argv, plan.env),
            guess=spec.estimate,
        )

    def _estimate(self, model: str) -> Estimate | None:
        return estimate_for(self.config.models[model], self.capacity, self.plans[model].env)


def _usable(plans: Mapping[str, Plan], gpus: list[Reading]) -> dict[str, list[str]]:
    """Return the GPUs that each model's environment lets it use."""
    return {
        model: [gpu.device for gpu in visible_gpus(plan.env, gpus)] for model, plan in plans.items()
    }
