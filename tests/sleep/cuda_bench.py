"""A CudaDriver on the simulated GPU, with servers to put to sleep."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmsnap.sleep.cuda import CudaDriver
from llmsnap.sleep.cuda_client import CudaClient
from llmsnap.sleep.cuda_steps import Limits
from llmsnap.sleep.driver import Target
from llmsnap.sleep.readings import FreeMemory
from llmsnap.sleep.secondstep import SecondStep
from tests.gpu.holder import Holder
from tests.sim.gauge import Gauge
from tests.sim.world import World

GIB = 1024**3


class Ram:
    """How much RAM processes may still take."""

    def __init__(self) -> None:
        self.room_bytes = 64 * GIB

    async def room_for(self, pid: int) -> int:
        return self.room_bytes


class CountingClient(CudaClient):
    """Counts how often the driver's facts are asked for."""

    hellos = 0

    async def hello(self) -> Any:
        self.hellos += 1
        return await super().hello()


class Bench:
    """What a test of the driver needs; `close` ends all of it."""

    def __init__(self, world: World, gauge: Gauge) -> None:
        self.world = world
        self.gauge = gauge
        self.ram = Ram()
        self.client = CountingClient(environ=world.environ(), hello_timeout_s=30)
        self.driver = self.driver_with()
        self._holders: list[Holder] = []

    def driver_with(
        self,
        *,
        gpus: FreeMemory | None = None,
        below: SecondStep | None = None,
        multi_gpu: bool = False,
        limits: Limits | None = None,
        proc: Path = Path("/proc"),
    ) -> CudaDriver:
        """Return another driver with the same processes."""
        self.driver = CudaDriver(
            self.client,
            gpus=gpus or self.gauge,
            host=self.ram,
            clock=time.monotonic,
            below=below,
            multi_gpu=multi_gpu,
            limits=limits,
            proc=proc,
        )
        return self.driver

    async def holder(self, mib: int = 64, wrapper: Sequence[str] = ()) -> Holder:
        """Start a process that holds that much."""
        holder = await Holder.start(self.world.environ(), mib=mib, wrapper=wrapper)
        self._holders.append(holder)
        return holder

    def target(
        self,
        holder: Holder,
        *,
        model: str = "qwen",
        generation: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> Target:
        """Return the model whose server `holder` is."""
        return Target(
            model=model,
            generation=generation,
            pid=holder.pid,
            argv=("llama-server",),
            env={**self.world.environment, **(env or {})},
            host="127.0.0.1",
            port=1,
            base_url="http://127.0.0.1:1",
        )

    async def free_mib(self) -> int:
        """Return what NVML says is free of the first GPU."""
        return (await self.gauge.read()).devices[0].free_bytes // 1024**2

    async def close(self) -> None:
        """End all that was started."""
        for holder in self._holders:
            await holder.kill()
        await self.driver.aclose()
