"""One look at this machine, and at one with a simulated driver."""

from __future__ import annotations

import os
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from time import monotonic

import pytest

from llmsnap.memory.device import Reading, Readings
from llmsnap.memory.host import Host
from llmsnap.memory.machine import Machine, NoGpus
from tests.memory.looks import reading

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Gpus:
    """A driver that says what the test wants."""

    def __init__(self, *devices: Reading, fault: str = "", stale: bool = False) -> None:
        self.readings = Readings(devices=devices, fault=fault, stale=stale)

    async def read(self) -> Readings:
        return self.readings

    async def aclose(self) -> None:
        pass


async def test_a_look_has_devices_and_trees() -> None:
    """RAM, swap and GPUs by name; processes by model, and of one that is gone none."""
    child = await create_subprocess_exec("cat", stdin=PIPE)
    machine = Machine(Host(clock=monotonic), Gpus(reading("gpu0", 2)))
    look = await machine.look({"a": os.getpid(), "gone": 2**22})
    pss = await machine.pss_bytes(look.trees)
    assert child.stdin is not None
    child.stdin.close()
    await child.wait()

    assert look.devices.keys() == {"host", "swap", "gpu0"}
    assert {os.getpid(), child.pid} <= set(look.trees["a"].pids)
    assert look.trees["gone"].pids == ()
    assert 0 < pss["a"] <= look.trees["a"].usage.rss_bytes
    assert (look.stale, look.faults, pss["gone"]) == (frozenset(), (), 0)


async def test_old_news_is_marked() -> None:
    """And why there is nothing newer is among the faults."""
    machine = Machine(Host(), Gpus(reading("gpu0", 2), fault="NVML stalls", stale=True))
    look = await machine.look({})
    assert look.stale == {"gpu0"}
    assert look.faults == ("NVML stalls",)


async def test_no_driver_is_no_fault_of_the_machine() -> None:
    """Most machines have none; whoever wants to know why a model can't sleep is told."""
    machine = Machine(Host(), NoGpus())
    assert (await machine.look({})).faults == ()
    assert "no NVIDIA driver" in (await machine.gpus.read()).fault
