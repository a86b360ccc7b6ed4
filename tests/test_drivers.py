"""The sleep drivers as the proxy builds them."""

from __future__ import annotations

import threading
from time import monotonic

import psutil
import pytest

from llmsnap.config.loader import loads
from llmsnap.drivers import Drivers
from llmsnap.memory.device import MemoryProbe
from llmsnap.memory.host import Host
from llmsnap.memory.machine import Machine, NoGpus
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


@pytest.mark.parametrize("gpus", [NoGpus(), NvmlProbe(clock=monotonic)])
async def test_without_an_nvidia_gpu_no_process_is_started(gpus: MemoryProbe) -> None:
    """Where there is one, CUDA would be started along with the first model."""
    if (await gpus.read()).devices:
        pytest.skip("there is an NVIDIA GPU")
    drivers = Drivers(loads(CONFIG).config, Machine(Host(), gpus), monotonic)
    chooser = drivers.chooser("a")
    assert chooser is not None
    await chooser.prepare()
    assert not any("cuda" in " ".join(c.cmdline()) for c in psutil.Process().children())
    await drivers.aclose()
    await gpus.aclose()


def thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}
