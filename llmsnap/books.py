"""Builds what keeps the memory books: what there is for models at the start, and who watches it."""

from __future__ import annotations

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
from llmsnap.memory.learned import Learned
from llmsnap.memory.machine import Look, Machine
from llmsnap.memory.unmeasured import unmeasured_gpu
from llmsnap.runtime.plan import Plan
from llmsnap.runtime.settling import Settling
from llmsnap.runtime.supervisor import Supervisor
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.watch import Watch
from llmsnap.sleep.eligibility import visible_gpus

logger = logging.getLogger(__name__)

_ONE_AT_A_TIME: Final = (
    "memory of %s can't be measured, so one model is up at a time; write what there is under "
    "memory.devices, and what each model takes as its vram"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What the scheduler is told of memory when it begins."""

    config: Config
    machine: Machine
    capacity: Mapping[str, int]
    """Bytes a device that models may hold; empty: memory is nobody's concern."""
    specs: tuple[ModelSpec, ...]

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
        usable = None
        if gpus:
            usable = {
                model: [gpu.device for gpu in visible_gpus(plan.env, gpus)]
                for model, plan in plans.items()
            }
        specs = specs_for(config, capacity, usable)
        return cls(config=config, machine=machine, capacity=capacity, specs=tuple(specs))

    def keep(
        self, supervisor: Supervisor, background: Background, clock: Callable[[], float]
    ) -> Callable[[Event], None]:
        """Keep them up to date for `supervisor`; return what takes its runners' reports.

        That holds some of them back until memory is shown free.
        """
        if not self.capacity:
            return supervisor.post
        declared = [spec.name for spec in self.specs if spec.need is not None]
        watch = Watch(
            self.machine, supervisor, Learned(declared), self.config.memory, self.capacity
        )
        supervisor.watch(watch.moved)
        background.spawn(watch.run(), name="memory watch")
        timeout_s = self.config.memory.settle_timeout_s
        settling = Settling(watch, supervisor, background, timeout_s=timeout_s, clock=clock)
        return settling.report
