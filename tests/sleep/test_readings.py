"""What drivers ask of memory, and who can answer it: mypy checks these assignments."""

from __future__ import annotations

import os
import time

from llmsnap.memory.host import Host
from llmsnap.memory.nvml import NvmlProbe
from llmsnap.sleep.readings import FreeMemory, HostRoom


async def test_the_probe_of_gpus_is_what_drivers_ask_for() -> None:
    """Without an adapter in between."""
    probe = NvmlProbe(clock=time.monotonic)
    free: FreeMemory = probe
    readings = await free.read()
    assert readings.fault or readings.devices
    await probe.aclose()


async def test_the_reader_of_ram_is_what_drivers_ask_for() -> None:
    """The same."""
    room: HostRoom = Host()
    assert await room.room_for(os.getpid()) > 0
