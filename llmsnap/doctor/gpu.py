"""The GPUs: whether they can be read, and whether the driver can put processes to sleep.

The driver is called in processes of their own, each within a bounded time: it may hang.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from llmsnap.config.quantities import size_text
from llmsnap.doctor.finding import Finding, Status
from llmsnap.memory.device import MemoryProbe, Reading, Readings
from llmsnap.sleep.cuda_client import CallLost
from llmsnap.sleep.cuda_wire import Hello
from llmsnap.sleep.eligibility import Kernel, driver_fault, kernel_fault

_CHECK: Final = "gpu"

SelfTest = Callable[[str], Awaitable[str]]
"""Takes a GPU's UUID, tries sleep and wake there, and returns what went wrong."""


class Cuda(Protocol):
    """The driver's library, called in another process."""

    async def hello(self) -> Hello:
        """Return what driver there is; raise CallLost when it doesn't say so in time."""
        ...


@dataclass(frozen=True, slots=True)
class Gpus:
    """NVIDIA's GPUs and their driver, as they were found."""

    kernel: Kernel
    readings: Readings
    fault: str = ""
    """Why no process can be put to sleep here; empty when the driver says that it can."""

    @property
    def is_there(self) -> bool:
        """Whether there is any NVIDIA GPU, or at least its driver."""
        return bool(self.kernel.module or self.readings.devices)


async def look(probe: MemoryProbe, kernel: Kernel, cuda: Cuda) -> Gpus:
    """Find out about GPUs and driver; libcuda is asked only where there is something to ask."""
    found = Gpus(kernel, await probe.read())
    if not found.is_there:
        return replace(found, fault=found.readings.fault or "there is no NVIDIA GPU")
    if fault := kernel_fault(kernel):
        return replace(found, fault=fault)
    try:
        return replace(found, fault=driver_fault(await cuda.hello()))
    except CallLost as lost:
        return replace(found, fault=str(lost))


def findings(gpus: Gpus) -> list[Finding]:
    """Return what is known of NVIDIA's GPUs, and of its driver where there is one."""
    if not gpus.is_there:
        return [Finding(_CHECK, Status.OK, "no NVIDIA GPU here; other GPUs work, but can't sleep")]
    return [*_readings(gpus.readings), _driver(gpus.kernel), _sleep(gpus)]


async def self_tests(gpus: Gpus, test: SelfTest) -> list[Finding]:
    """Return how a small process fared that was put to sleep and woken on each GPU."""
    if not gpus.is_there:
        return [Finding("self-test", Status.OK, "there is no NVIDIA GPU to try it on")]
    whole = [device for device in gpus.readings.devices if not device.mig]
    if gpus.fault or not whole:
        return [Finding("self-test", Status.WARN, "not tried: sleep by cuda isn't there")]
    return [await _tested(device, test) for device in whole]


async def _tested(device: Reading, test: SelfTest) -> Finding:
    check = f"self-test {device.device}"
    if fault := await test(device.uuid):
        remedy = "set `sleepMode: off` for models on it, or install another driver"
        return Finding(check, Status.WARN, f"a small process was put to sleep: {fault}", remedy)
    found = "a small process slept and woke, and its memory was whole"
    return Finding(check, Status.OK, found)


def _readings(readings: Readings) -> list[Finding]:
    if readings.fault:
        return [Finding.of_fault(_CHECK, Status.WARN, readings.fault)]
    devices = [Finding(device.device, Status.OK, _described(device)) for device in readings.devices]
    notes = [Finding.of_fault(_CHECK, Status.WARN, note) for note in readings.notes]
    return [*devices, *notes] or [Finding(_CHECK, Status.WARN, "the driver knows no GPU")]


def _described(device: Reading) -> str:
    memory = f"{size_text(device.free_bytes)} of {size_text(device.total_bytes)} free"
    return f"{device.name}, {memory}" if device.name else memory


def _driver(kernel: Kernel) -> Finding:
    if not kernel.driver:
        return Finding("driver", Status.WARN, "its version can't be read from /proc/driver/nvidia")
    kind = "open kernel module" if kernel.has_open_module else "proprietary kernel module"
    return Finding("driver", Status.OK, f"{kernel.driver}, {kind}")


def _sleep(gpus: Gpus) -> Finding:
    check = "sleep by cuda"
    if gpus.fault:
        return Finding.of_fault(check, Status.WARN, gpus.fault)
    if split := [device.device for device in gpus.readings.devices if device.mig]:
        found = f"{', '.join(split)}: split (MIG), which the driver can't checkpoint"
        return Finding(check, Status.WARN, found, "switch MIG off for models that are to sleep")
    return Finding(check, Status.OK, "the driver can checkpoint processes")
