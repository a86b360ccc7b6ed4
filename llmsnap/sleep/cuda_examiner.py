"""Whether one process can be put to sleep now, asked of everyone who may object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from llmsnap.config.quantities import rough_size
from llmsnap.sleep.cuda_api import ProcessState, state_name
from llmsnap.sleep.cuda_client import CallLost, CudaClient
from llmsnap.sleep.cuda_holding import Holding, Ineligible, find_holding, read_now
from llmsnap.sleep.cuda_steps import Limits
from llmsnap.sleep.driver import Target
from llmsnap.sleep.eligibility import child_fault, driver_fault, kernel_fault, read_kernel
from llmsnap.sleep.readings import FreeMemory, HostRoom

_FAILURES_ALLOWED: Final = 2


class Examiner:
    """Finds what a model holds, or why it can't be put to sleep; remembers what won't change."""

    def __init__(
        self,
        client: CudaClient,
        *,
        gpus: FreeMemory,
        host: HostRoom,
        clock: Callable[[], float],
        limits: Limits,
        multi_gpu: bool,
        proc: Path,
    ) -> None:
        self._client = client
        self._gpus = gpus
        self._host = host
        self._clock = clock
        self._limits = limits
        self.multi_gpu = multi_gpu
        """Whether processes on several GPUs are put to sleep, too."""
        self._proc = proc
        self._machine_fault: str | None = None
        self._faults: dict[str, tuple[int, str]] = {}
        """By model: a generation, and why it can't sleep as long as it lives."""
        self._failures: Counter[str] = Counter()
        self._measured: dict[str, tuple[int, Mapping[str, int]]] = {}
        """By model: a generation, and what it gave back at its last sleep."""

    async def prepare(self) -> None:
        """Do now what takes long about the first process that is asked about, if there is a GPU."""
        with suppress(Ineligible):
            if await read_now(self._gpus, self._clock):
                await self._examine_machine()
                await self._client.prepare()

    async def examine(self, target: Target) -> Holding:
        """Return what the model holds if it can be put to sleep now; else raise Ineligible."""
        self._recall(target)
        await read_now(self._gpus, self._clock)  # the cheapest way to see that there is no driver
        await self._examine_machine()
        try:
            holding = await self._find(target)
        except Ineligible as why:
            if why.for_good:
                self._faults[target.model] = target.generation, str(why)
            raise
        await self._examine_state(holding.pid)
        await self._examine_room(holding)
        return holding

    def failed(self, target: Target) -> None:
        """Take note that a sleep went wrong; two in a row, and the model isn't tried again."""
        self._failures[target.model] += 1

    def slept(self, target: Target, freed: Mapping[str, int]) -> None:
        """Take note of what a sleep gave back, by device."""
        del self._failures[target.model]
        self._measured[target.model] = target.generation, freed

    def _recall(self, target: Target) -> None:
        generation, fault = self._faults.get(target.model, (0, ""))
        if generation != target.generation:
            fault = child_fault(target.env)
        if self._failures[target.model] >= _FAILURES_ALLOWED:
            fault = "two sleeps of it in a row failed; see the log, then restart llmsnap"
        if fault:
            raise Ineligible(fault)

    async def _find(self, target: Target) -> Holding:
        gpus = await read_now(self._gpus, self._clock)
        holding = await find_holding(target, gpus, self._client, multi_gpu=self.multi_gpu)
        generation, measured = self._measured.get(target.model, (0, {}))
        if holding.exact or generation != target.generation:
            return holding
        return replace(holding, bytes=measured)

    async def _examine_machine(self) -> None:
        if self._machine_fault is None:
            fault = kernel_fault(read_kernel(self._proc))
            try:
                self._machine_fault = fault or driver_fault(await self._client.hello())
            except CallLost as lost:
                raise Ineligible(str(lost)) from None
        if self._machine_fault:
            raise Ineligible(self._machine_fault)

    async def _examine_state(self, pid: int) -> None:
        try:
            reply = await self._client.state(pid, deadline_s=self._limits.call_s)
        except CallLost as lost:
            raise Ineligible(str(lost)) from None
        if reply.state is None:
            raise Ineligible(f"the driver doesn't tell the state of pid {pid} ({reply.name})")
        if reply.state != ProcessState.RUNNING:
            raise Ineligible(f"it is {state_name(reply.state)}, not running")

    async def _examine_room(self, holding: Holding) -> None:
        needed = self._limits.in_ram(holding.total_bytes)
        room = await self._host.room_for(holding.pid)
        if room < needed:
            raise Ineligible(
                f"RAM is short: its copy needs {rough_size(needed)}, "
                f"and it may take {rough_size(room)} more"
            )
