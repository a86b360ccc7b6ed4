"""What an earlier proxy left to this one, and whether this one leaves anything."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from llmsnap.config.schema import Config
from llmsnap.core.messages import Found
from llmsnap.memory.capacity import SWAP
from llmsnap.runtime.adoption import Adoption, Heirloom
from llmsnap.runtime.health import Prober
from llmsnap.runtime.lasting import can_last
from llmsnap.runtime.plan import Plan
from llmsnap.runtime.rest import Chooses
from llmsnap.runtime.runfile import RunFiles
from llmsnap.runtime.runner import Runner

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """Processes to go on with, by model."""

    heirlooms: Mapping[str, Heirloom] = field(default_factory=dict)

    @property
    def found(self) -> tuple[Found, ...]:
        """What the scheduler must know of them."""
        return tuple(heirloom.found(model) for model, heirloom in self.heirlooms.items())

    def widen(self, tiers: Mapping[str, int]) -> dict[str, int]:
        """Return `tiers` with what of swap isn't free because these are there."""
        taken = Counter({found.tier: found.tier_bytes for found in self.found})
        return {tier: size + (taken[tier] if tier == SWAP else 0) for tier, size in tiers.items()}

    def handed_to(self, runners: Mapping[str, Runner]) -> Mapping[str, Runner]:
        """Return `runners`, of which each has the process that was left to its model."""
        for model, heirloom in self.heirlooms.items():
            runners[model].start(heirloom.will.generation, heirloom)
        return runners


def leaves_processes(config: Config) -> bool:
    """Whether processes are to outlive this proxy; says so where they can't."""
    if config.runtime.adopt and not can_last():
        logger.warning("runtime.adopt needs Linux 5.3 or later; models end with llmsnap here")
        return False
    return config.runtime.adopt


async def inherit(
    config: Config,
    files: RunFiles,
    plans: Mapping[str, Plan],
    chooser: Callable[[str], Chooses | None],
) -> Inheritance:
    """End what dead proxies left, but for what can be gone on with."""
    if not (config.runtime.adopt and can_last()):
        await files.end_leftovers()
        return Inheritance()
    choosers = {model: chooser(model) for model in plans}
    async with Prober() as prober:
        return Inheritance(heirlooms=await Adoption(files, prober, plans, choosers).find())
