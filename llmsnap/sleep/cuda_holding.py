"""Which process of a model holds GPU memory, and how much of which GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llmsnap.sleep.cuda_api import Result
from llmsnap.sleep.cuda_client import CallLost, CudaClient
from llmsnap.sleep.driver import Target
from llmsnap.sleep.eligibility import gpus_fault, visible_gpus
from llmsnap.sleep.processes import Seen, family, look
from llmsnap.sleep.readings import FreeMemory, GpuMemory

_QUERY_S: Final = 5.0


class Ineligible(Exception):
    """A process can't be put to sleep; the message says why, for the operator."""

    def __init__(self, why: str, *, for_good: bool = False) -> None:
        super().__init__(why)
        self.for_good = for_good
        """Whether it will be so as long as the process lives."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The one process of a model that holds GPU memory."""

    pid: int
    started: int
    bytes: Mapping[str, int]
    """By device."""
    exact: bool
    """False: the driver doesn't tell, and these are bounds: all that is used of the GPUs."""

    @property
    def total_bytes(self) -> int:
        """What it holds on all GPUs together."""
        return sum(self.bytes.values())

    @property
    def is_here(self) -> bool:
        """Whether the process still lives under its pid."""
        seen = look(self.pid)
        return seen is not None and seen.started == self.started and not seen.dead


async def read_now(gpus: FreeMemory, clock: Callable[[], float]) -> Sequence[GpuMemory]:
    """Return how full the GPUs are now; raise Ineligible when only old figures are to be had."""
    asked_at = clock()
    readings = await gpus.read()
    if readings.fault:
        raise Ineligible(readings.fault)
    if readings.stale or any(gpu.taken_at < asked_at for gpu in readings.devices):
        raise Ineligible("the GPUs' memory can't be read now: NVML doesn't answer")
    return readings.devices


async def find_holding(
    target: Target, gpus: Sequence[GpuMemory], client: CudaClient, *, multi_gpu: bool
) -> Holding:
    """Return what the model holds; raise Ineligible when no single process of it can be named."""
    gpus = visible_gpus(target.env, gpus)
    if fault := gpus_fault(gpus, target.argv, multi_gpu=multi_gpu):
        raise Ineligible(fault)
    members = await asyncio.to_thread(family, target.pid)
    if not members:
        raise Ineligible("its process is gone")
    if any(member.stopped for member in members):
        raise Ineligible("its process is stopped by a signal or a debugger; continue it first")
    if listed := _listed(members, gpus):
        return _only(listed)
    # In containers and some drivers the list is of no use; the checkpoint API knows by itself.
    holders = [member for member in members if await _has_context(member, client)]
    bounds = {gpu.device: gpu.total_bytes - gpu.free_bytes for gpu in gpus}
    return _only([Holding(one.pid, one.started, bounds, exact=False) for one in holders])


def _listed(members: Sequence[Seen], gpus: Sequence[GpuMemory]) -> list[Holding]:
    held: dict[int, dict[str, int]] = {}
    for gpu in gpus:
        for pid, size in (gpu.processes or {}).items():
            if size:
                held.setdefault(pid, {})[gpu.device] = size
    return [
        Holding(one.pid, one.started, held[one.pid], exact=True)
        for one in members
        if one.pid in held
    ]


def _only(holdings: Sequence[Holding]) -> Holding:
    if not holdings:
        raise Ineligible("no process of it holds memory of an NVIDIA GPU")
    if len(holdings) > 1:
        pids = ", ".join(str(holding.pid) for holding in holdings)
        raise Ineligible(f"several of its processes hold GPU memory (pids {pids})")
    return holdings[0]


async def _has_context(member: Seen, client: CudaClient) -> bool:
    try:
        reply = await client.state(member.pid, deadline_s=_QUERY_S)
    except CallLost as lost:
        raise Ineligible(f"the driver can't say what is in pid {member.pid}: {lost}") from None
    if reply.result == Result.OPERATING_SYSTEM and look(member.pid):
        why = f"the driver may not look into pid {member.pid}; run it as the user of llmsnap"
        raise Ineligible(why, for_good=True)
    return reply.result == Result.SUCCESS
