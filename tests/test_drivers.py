"""The sleep drivers as the proxy builds them."""

from __future__ import annotations

import threading
from time import monotonic

from llmsnap.config.loader import loads
from llmsnap.drivers import Drivers
from llmsnap.memory.host import Host
from llmsnap.memory.machine import Machine
from llmsnap.memory.nvml import NvmlProbe
from tests.sleep.holder import target

CONFIG = 'models: {a: {cmd: llama-server, proxy: "http://127.0.0.1:9"}}'


async def test_nothing_is_left_when_they_are_closed() -> None:
    """The thread that reads the GPUs ends with them, too."""
    machine = Machine(Host(), NvmlProbe(clock=monotonic))
    drivers = Drivers(loads(CONFIG).config, machine, monotonic)
    await drivers.all()["cuda"].probe(target(1, 1))
    assert "nvml" in thread_names()
    await drivers.aclose()
    await machine.aclose()
    assert "nvml" not in thread_names()


def thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}
