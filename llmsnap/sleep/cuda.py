"""Sleep by NVIDIA's checkpoint API: a process's GPU memory moves into its own RAM and back.

The KV cache, the CUDA graphs and every address are there again after a wake. Until then nothing
may be asked of the process: its first call into CUDA can crash it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from llmsnap.config.quantities import rough_size
from llmsnap.errors import SleepFailed, SleepRefused, WakeFailed, WakeRefused
from llmsnap.sleep.cuda_api import ProcessState, Result
from llmsnap.sleep.cuda_client import CallLost, CudaClient
from llmsnap.sleep.cuda_examiner import Examiner
from llmsnap.sleep.cuda_holding import Holding, Ineligible, read_now
from llmsnap.sleep.cuda_steps import Limits, Steps
from llmsnap.sleep.driver import Memo, Moved, Supported, Target, Unsupported, Verdict
from llmsnap.sleep.processes import look, raise_oom_score, set_oom_score
from llmsnap.sleep.rates import Rates
from llmsnap.sleep.readings import FreeMemory, GpuMemory, HostRoom
from llmsnap.sleep.secondstep import SecondStep

Gpus = Sequence[GpuMemory]

_SHARE_SHOWN: Final = 0.8
"""Of a footprint that NVML must show free before a sleep counts."""
_LEAST_SHOWN: Final = 64 * 1024**2
"""The same where the footprint isn't known: no context is smaller."""
_QUERY_S: Final = 10.0
_OOM_SCORE: Final = 500
"""Added while a process holds its whole model in RAM: the kernel shall take it, not the proxy."""


@dataclass(frozen=True, slots=True)
class _Asleep:
    """What is needed to wake a process."""

    generation: int
    holding: Holding
    needed: Mapping[str, int]
    """Bytes by device that must be free before it may be restored."""
    oom_score: int | None


class CudaDriver:
    """Moves one process's memory from its GPUs into RAM and back; see `SleepDriver`.

    `client` makes the calls and is closed with this; `clock` is the one that stamps the readings of
    `gpus`. Without `below`, what sleeps can't be moved on. A cancelled `sleep` or `wake` leaves the
    process in an unknown state: end it.
    """

    name: Final = "cuda"
    keeps_state: Final = True
    kill_only: Final = True
    """End an asleep process by SIGKILL alone. On SIGTERM llama-server frees its model, and that
    hangs or crashes while the GPU isn't there; it has nothing on disk that a kill could spoil."""

    def __init__(
        self,
        client: CudaClient,
        *,
        gpus: FreeMemory,
        host: HostRoom,
        clock: Callable[[], float],
        below: SecondStep | None = None,
        multi_gpu: bool = False,
        limits: Limits | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        limits = limits or Limits()
        self.below: Final = below
        self.rates = Rates()
        """For predictions: how fast memory was seen to move."""
        self._client = client
        self._gpus = gpus
        self._clock = clock
        self._limits = limits
        self._steps = Steps(client, limits)
        self._examiner = Examiner(
            client,
            gpus=gpus,
            host=host,
            clock=clock,
            limits=limits,
            multi_gpu=multi_gpu,
            proc=proc,
        )
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._asleep: dict[str, _Asleep] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        """By model: a generation, and how many bytes a sleep of it moves."""

    def allow_multi_gpu(self, *, allowed: bool) -> None:
        """Have processes on several GPUs put to sleep too, or not, from now on."""
        self._examiner.multi_gpu = allowed

    async def prepare(self) -> None:
        """Start CUDA's processes, if there is a GPU; the first of their calls take seconds."""
        await self._examiner.prepare()

    async def probe(self, target: Target) -> Verdict:
        """Return whether the process can be put to sleep now; never raises, never harms it."""
        asleep = self._asleep.get(target.model)
        if asleep is not None and asleep.generation == target.generation:
            return Supported(tier="ram", tier_bytes=asleep.holding.total_bytes)
        try:
            holding = await self._examiner.examine(target)
        except Ineligible as why:
            return Unsupported(str(why))
        if holding.exact:
            self._sizes[target.model] = target.generation, holding.total_bytes
        return Supported(tier="ram", tier_bytes=holding.total_bytes)

    def wake_s(self, target: Target) -> float | None:
        """Predict the seconds that a wake takes; None before its size and the speed were seen."""
        generation, size = self._sizes.get(target.model, (None, 0))
        return self.rates.wake.seconds_for(size) if generation == target.generation else None

    async def sleep(self, target: Target) -> Moved:
        """Put the process to sleep; raise SleepRefused when it is awake as before.

        Raises SleepFailed when it may be neither asleep nor well; end it then.
        """
        begun = self._clock()
        try:
            holding = await self._examiner.examine(target)
            async with self._turn(holding.bytes):
                asleep = await self._put_to_sleep(target, holding)
        except Ineligible as why:
            raise SleepRefused(str(why)) from None
        except SleepFailed as failure:
            if not failure.intact:
                self._examiner.failed(target)
            raise
        self._examiner.slept(target, asleep.holding.bytes)
        self._asleep[target.model] = asleep
        self._sizes[target.model] = target.generation, asleep.holding.total_bytes
        return self._moved(begun, asleep.holding, sign=-1)

    async def wake(self, target: Target) -> Moved:
        """Wake the process; raise WakeRefused when it is still asleep and may be woken later.

        Raises WakeFailed when it can't ever be; end it then.
        """
        begun = self._clock()
        asleep = self._asleep.get(target.model)
        if asleep is None or asleep.generation != target.generation:
            raise WakeFailed("nothing is known of its sleep")
        try:
            if self.below is not None and await self.below.is_out(target):
                await self._restore_from_swap(target, asleep, self.below)
            else:
                await self._restore_when_it_fits(asleep)
            await self._steps.unlock(asleep.holding.pid)
        except WakeFailed as failure:
            if not failure.intact:
                del self._asleep[target.model]
            raise
        del self._asleep[target.model]
        if asleep.oom_score is not None:
            set_oom_score(asleep.holding.pid, asleep.oom_score)
        return self._moved(begun, asleep.holding, sign=1)

    def memo(self, target: Target) -> Memo:
        """Return what the process held, and what must be free before it may be restored."""
        memo: Memo = msgspec.to_builtins(self._asleep[target.model])
        return memo

    async def take_over(self, target: Target, memo: Memo) -> Verdict:
        """Take charge of a process that the driver itself says is checkpointed."""
        try:
            asleep = replace(msgspec.convert(memo, _Asleep), generation=target.generation)
            pid = asleep.holding.pid
            if not asleep.holding.is_here:
                return Unsupported("the process that held GPU memory is gone")
            reply = await self._client.state(pid, deadline_s=_QUERY_S)
        except msgspec.ValidationError as error:
            return Unsupported(f"what was noted of its sleep can't be read: {error}")
        except CallLost as lost:
            return Unsupported(f"the driver doesn't say how pid {pid} is: {lost}")
        if reply.result != Result.SUCCESS or reply.state != ProcessState.CHECKPOINTED:
            return Unsupported(f"the driver doesn't say that pid {pid} is checkpointed")
        self._asleep[target.model] = asleep
        self._sizes[target.model] = target.generation, asleep.holding.total_bytes
        return Supported(tier="ram", tier_bytes=asleep.holding.total_bytes)

    async def aclose(self) -> None:
        """End the processes that make the calls; what sleeps goes on sleeping."""
        await self._client.aclose()

    async def _put_to_sleep(self, target: Target, holding: Holding) -> _Asleep:
        before = await read_now(self._gpus, self._clock)
        await self._steps.lock(holding.pid)
        seconds = await self._steps.checkpoint(holding.pid, holding.total_bytes)
        after = await self._until_it_left(holding, before)
        if not holding.exact:
            holding = replace(holding, bytes=_freed(holding, before, after))
        if seconds is not None:
            self.rates.sleep.learn(holding.total_bytes, seconds)
        return _Asleep(
            generation=target.generation,
            holding=holding,
            needed=self._needed(holding, after),
            oom_score=raise_oom_score(holding.pid, _OOM_SCORE),
        )

    async def _until_it_left(self, holding: Holding, before: Gpus) -> Gpus:
        """Wait until NVML shows that the memory came back: a result code alone proves nothing."""
        deadline = self._clock() + self._limits.settle_s
        last: Mapping[str, int] = {}
        while True:
            after = await self._gpus_if_known()
            freed = _freed(holding, before, after)
            # Without a footprint to compare with, it has settled when two figures agree.
            if _has_left(holding, freed, after) and (holding.exact or freed == last):
                return after
            if self._clock() >= deadline:
                shown = rough_size(sum(freed.values()))
                raise SleepFailed(
                    f"the driver says it is asleep, but {shown} came back of "
                    f"{rough_size(holding.total_bytes)}"
                )
            last = freed
            await asyncio.sleep(self._limits.poll_s)

    async def _gpus_if_known(self) -> Gpus:
        with suppress(Ineligible):
            return await read_now(self._gpus, self._clock)
        return ()

    def _needed(self, holding: Holding, after: Gpus) -> dict[str, int]:
        """Return what must be free for a wake: the margin is waived where it never was there."""
        free = {gpu.device: gpu.free_bytes for gpu in after}
        return {
            device: max(size, min(self._limits.on_gpu(size), free[device]))
            for device, size in holding.bytes.items()
        }

    async def _restore_from_swap(self, target: Target, asleep: _Asleep, below: SecondStep) -> None:
        """Bring it back into RAM once the GPU has room, then restore; refused, it goes back."""
        async with self._room(asleep):
            pass
        await below.bring_back(target)
        try:
            await self._restore_when_it_fits(asleep)
        except WakeRefused:
            with suppress(SleepRefused):
                await below.page_out(target)
            raise

    async def _restore_when_it_fits(self, asleep: _Asleep) -> None:
        holding = asleep.holding
        async with self._room(asleep):
            seconds = await self._steps.restore(holding.pid, holding.total_bytes)
        if seconds is not None:
            self.rates.wake.learn(holding.total_bytes, seconds)

    @asynccontextmanager
    async def _room(self, asleep: _Asleep) -> AsyncIterator[None]:
        """Wait for room on the GPUs, which nothing else of ours takes then; raise WakeRefused."""
        holding = asleep.holding
        deadline = self._clock() + self._limits.settle_s
        while True:
            if not holding.is_here:
                raise WakeFailed("its process died while it was asleep")
            async with self._turn(holding.bytes):
                hindrance = await self._hindrance(asleep)
                if not hindrance:
                    yield
                    return
            if self._clock() >= deadline:
                raise WakeRefused(hindrance)
            await asyncio.sleep(self._limits.poll_s)

    async def _hindrance(self, asleep: _Asleep) -> str:
        """Return what is in the way of a restore; one that runs out of memory can't be undone."""
        pid = asleep.holding.pid
        if (seen := look(pid)) and seen.stopped:
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)  # the driver's calls hang as long as it is stopped
            return "its process is stopped by a signal or a debugger"
        try:
            gpus = await read_now(self._gpus, self._clock)
        except Ineligible as why:
            return str(why)
        free = {gpu.device: gpu.free_bytes for gpu in gpus}
        for device, needed in asleep.needed.items():
            if free.get(device, 0) < needed:
                return (
                    f"{device} has {rough_size(free.get(device, 0))} free, and it needs "
                    f"{rough_size(needed)}"
                )
        return ""

    @asynccontextmanager
    async def _turn(self, devices: Iterable[str]) -> AsyncIterator[None]:
        """Let nothing else of ours change what is free on `devices`."""
        async with AsyncExitStack() as stack:
            for device in sorted(devices):
                await stack.enter_async_context(self._turns[device])
            yield

    def _moved(self, begun: float, holding: Holding, *, sign: int) -> Moved:
        moved = {device: sign * size for device, size in holding.bytes.items()}
        moved["ram"] = -sign * holding.total_bytes
        return Moved(seconds=self._clock() - begun, bytes=moved)


def _freed(holding: Holding, before: Gpus, after: Gpus) -> dict[str, int]:
    """Return what came back by device; where it is known, what others did meanwhile is left out."""
    then = {gpu.device: gpu for gpu in before if gpu.device in holding.bytes}
    return {
        now.device: now.free_bytes
        - then[now.device].free_bytes
        + (_growth_of_others(holding.pid, then[now.device], now) if holding.exact else 0)
        for now in after
        if now.device in then
    }


def _growth_of_others(pid: int, then: GpuMemory, now: GpuMemory) -> int:
    if then.processes is None or now.processes is None:
        return 0
    before, after = (
        sum(size for owner, size in processes.items() if owner != pid)
        for processes in (then.processes, now.processes)
    )
    return after - before


def _has_left(holding: Holding, freed: Mapping[str, int], after: Gpus) -> bool:
    if not holding.exact:
        return sum(freed.values()) >= _LEAST_SHOWN
    if any(holding.pid in (gpu.processes or {}) for gpu in after):
        return False
    return all(
        freed.get(device, 0) >= _SHARE_SHOWN * size for device, size in holding.bytes.items()
    )
