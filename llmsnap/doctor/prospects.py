"""How each model sleeps, or would: what can be known of it while it doesn't run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final

from llmsnap.config.quantities import size_text
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.memory.device import Reading
from llmsnap.runtime.plan import Plan, plan_for
from llmsnap.runtime.ports import local_addresses
from llmsnap.sleep.choose import allowed
from llmsnap.sleep.eligibility import child_fault, gpus_fault, visible_gpus
from llmsnap.sleep.pageable import go_between_fault

_NO_STEPS: Final = "sleepEndpoints and wakeEndpoints aren't set"
_ON_GPU: Final = "its `vram` says that it uses a GPU, and what uses a GPU isn't paged out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What of this machine decides how models sleep. A fault is why none can; empty: some can."""

    cuda_fault: str = ""
    gpus: Sequence[Reading] = ()
    pageout_fault: str = ""
    swap_bytes: int = 0
    """How much of it is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """How one model sleeps."""

    model: str
    mode: str
    """Its `sleepMode`."""
    drivers: tuple[str, ...] = ()
    """Those that nothing speaks against, best first; none: it is stopped and started."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why not the others, by their names."""
    seen: bool = False
    """Whether a running proxy says so of its process; else this is what is to be expected."""

    @property
    def words(self) -> str:
        """Which driver, for people."""
        if not self.drivers:
            return "stop and start"
        first, *others = self.drivers
        return f"{first} if it uses a GPU, else {others[0]}" if others else first


async def prospects(
    config: Config,
    environ: Mapping[str, str],
    ground: Ground,
    running: Mapping[str, Mapping[str, Any]],
) -> list[Prospect]:
    """Return how each configured model sleeps.

    `running` is what a proxy that runs says of its models (`/api/models`), by id.
    """
    found = []
    for id_, model in config.models.items():
        seen = _seen(id_, model, running.get(id_, {}))
        found.append(seen or await _expected(plan_for(id_, config, environ), config, ground))
    return found


def _seen(id_: str, model: ModelConfig, entry: Mapping[str, Any]) -> Prospect | None:
    """Return what is known of a process of it; None: there is none, or it wasn't asked yet."""
    driver, refusals = entry.get("driver"), entry.get("sleep_refusals") or {}
    if not driver and not refusals:
        return None
    drivers = (str(driver),) if driver else ()
    return Prospect(model=id_, mode=model.sleep_mode, drivers=drivers, refusals=refusals, seen=True)


async def _expected(plan: Plan, config: Config, ground: Ground) -> Prospect:
    model = config.models[plan.model]
    faults = {
        "endpoints": "" if model.sleep_endpoints and model.wake_endpoints else _NO_STEPS,
        "cuda": _cuda_fault(plan, ground, multi_gpu=config.sleep.multi_gpu),
        "pageout": await _pageout_fault(plan, model, ground),
    }
    possible, refusals = _sorted_out((name, faults[name]) for name in allowed(model.sleep_mode))
    return Prospect(model=plan.model, mode=model.sleep_mode, drivers=possible, refusals=refusals)


def _sorted_out(verdicts: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the drivers that may be the one, and why not the others before them.

    Whether it's `cuda` shows only when the model is up, so the next one may be it as well.
    """
    possible: list[str] = []
    refusals: dict[str, str] = {}
    for name, fault in verdicts:
        if fault:
            refusals[name] = fault
            continue
        possible.append(name)
        if name != "cuda":
            break
    return tuple(possible), refusals


def _cuda_fault(plan: Plan, ground: Ground, *, multi_gpu: bool) -> str:
    if fault := ground.cuda_fault or child_fault(plan.env):
        return fault
    visible = visible_gpus(plan.env, ground.gpus)
    return gpus_fault(visible, plan.argv, multi_gpu=multi_gpu)


async def _pageout_fault(plan: Plan, model: ModelConfig, ground: Ground) -> str:
    if ground.pageout_fault:
        return ground.pageout_fault
    if model.vram:
        return _ON_GPU
    if plan.argv and (fault := go_between_fault(PurePath(plan.argv[0]).name)):
        return fault
    if not await local_addresses(plan.endpoint.host):
        return f"its server isn't on this machine, but on {plan.endpoint.host}"
    needed, left = model.ram_bytes or 0, ground.swap_bytes
    if needed > left:
        return (
            f"swap is short: its `ram` is {size_text(needed)}, {size_text(left)} of swap are left"
        )
    return ""
