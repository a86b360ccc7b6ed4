"""A GPU to try findings on: the simulated one, or a real one with the same tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from llmsnap.memory.device import Reading
from llmsnap.sleep.cuda_client import CallLost, Worker
from llmsnap.sleep.cuda_wire import Operation, Reply
from tests.gpu.holder import Holder
from tests.sim.gauge import Gauge
from tests.sim.world import World


def has_gpu() -> bool:
    """Whether there is a real GPU, or at least its driver."""
    return Path("/dev/nvidiactl").exists()


class Rig:
    """Callers of the checkpoint API, processes to call it on, and NVML to watch them."""

    def __init__(self, environ: Mapping[str, str], gauge: Gauge, world: World | None) -> None:
        self.environ = environ
        self.gauge = gauge
        self.world = world
        self.caller = Worker(environ, hello_timeout_s=30)
        self.witness = Worker(environ, hello_timeout_s=30)
        """A second caller: the first one may be busy, or dead."""
        self._holders: list[Holder] = []

    @classmethod
    async def simulated(cls, world: World) -> Rig:
        """Return a rig of the simulated GPU."""
        environ = world.environ()
        return cls(environ, await Gauge.start(environ), world)

    @classmethod
    async def real(cls) -> Rig:
        """Return a rig of the first real GPU."""
        return cls(os.environ, await Gauge.start(os.environ), None)

    async def holder(self, mib: int = 64) -> Holder:
        """Start a process that holds that much; it is ended with the rig."""
        holder = await Holder.start(self.environ, mib=mib)
        self._holders.append(holder)
        return holder

    async def slow_holder(self) -> Holder:
        """Start one whose checkpoint and restore take at least half a second."""
        if self.world is None:
            return await self.holder(mib=8192)
        self.world.turn(checkpoint_mibps=256, restore_mibps=256)
        return await self.holder(mib=128)

    async def call(self, op: Operation, pid: int, *, timeout_ms: int = 0) -> Reply:
        """Make a call that is expected to have an answer."""
        return await self.caller.ask(op, pid, deadline_s=60, timeout_ms=timeout_ms)

    async def calls(self, pid: int, *operations: Operation) -> list[int]:
        """Make several calls, and return their results."""
        return [(await self.call(op, pid)).result for op in operations]

    async def state(self, pid: int) -> int | None:
        """Return the state of `pid`."""
        return (await self.witness.ask("state", pid, deadline_s=60)).state

    async def hangs(self, op: Operation, pid: int, *, timeout_ms: int = 0) -> bool:
        """Whether a call has no answer for half a second; its caller is killed then."""
        try:
            await self.caller.ask(op, pid, deadline_s=0.5, timeout_ms=timeout_ms)
        except CallLost:
            return True
        return False

    async def gpu(self) -> Reading:
        """Read the first GPU."""
        return (await self.gauge.read()).devices[0]

    async def lists(self, pid: int) -> bool:
        """Whether NVML lists `pid`; skip where it lists nobody."""
        processes = (await self.gpu()).processes
        if processes is None:
            pytest.skip("NVML doesn't tell bytes by process here")
        return pid in processes

    async def aclose(self) -> None:
        """End all that was started."""
        for holder in self._holders:
            await holder.kill()
        await self.caller.aclose()
        await self.witness.aclose()
        await self.gauge.aclose()
