"""The GPUs: whether they can be read, and whether the driver can put processes to sleep."""

from __future__ import annotations

from llmsnap.config.quantities import size_text
from llmsnap.doctor.finding import Finding, Status
from llmsnap.memory.device import MemoryProbe, Reading, Readings
from llmsnap.sleep.eligibility import Kernel, kernel_fault

_CHECK = "gpu"


async def gpus(probe: MemoryProbe, kernel: Kernel) -> list[Finding]:
    """Return what is known of NVIDIA's GPUs, and of its driver where there is one."""
    readings = await probe.read()
    if not kernel.module and not readings.devices:
        return [Finding(_CHECK, Status.OK, "no NVIDIA GPU here; other GPUs work, but can't sleep")]
    return [*_readings(readings), _driver(kernel), _sleep(kernel, readings)]


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


def _sleep(kernel: Kernel, readings: Readings) -> Finding:
    check = "sleep by cuda"
    if fault := kernel_fault(kernel):
        return Finding.of_fault(check, Status.WARN, fault)
    if split := [device.device for device in readings.devices if device.mig]:
        found = f"{', '.join(split)}: split (MIG), which the driver can't checkpoint"
        return Finding(check, Status.WARN, found, "switch MIG off for models that are to sleep")
    return Finding(check, Status.OK, "the driver can checkpoint processes")
