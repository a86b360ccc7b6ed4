"""What a run found, with all that must be known to read it: the JSON of `llmsnap bench`."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from llmsnap import __version__
from llmsnap.bench.samples import Sample
from llmsnap.errors import LlmsnapError
from llmsnap.sleep.eligibility import read_kernel

FORMAT: Final = 1
_LANE_BYTES_PER_S: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Of PCI Express, by generation, after its encoding."""
_WHAT_CPU: Final = Path("/proc/cpuinfo")


class Machine(msgspec.Struct, kw_only=True):
    """Where it was measured."""

    system: str
    processor: str
    cores: int
    memory_bytes: int
    swap_bytes: int
    gpus: list[str] = []
    link_bytes_per_s: float | None = None
    """What the bus to the GPU can carry."""
    disk_bytes_per_s: float | None = None
    """How fast a model's file comes from its disk; known where the page cache was emptied."""
    driver: str = ""
    """The version of NVIDIA's; empty: there is none."""


class Report(msgspec.Struct, kw_only=True):
    """One run."""

    format: int = FORMAT
    kind: str
    """`swap` or `kv`."""
    made_at: str
    version: str = __version__
    machine: Machine
    settings: Mapping[str, Any]
    """What was asked for."""
    engines: dict[str, str] = {}
    """What the model's server calls itself, by model."""
    samples: list[Sample] = []
    left_out: list[str] = []
    """What couldn't be measured, and why."""
    notes: list[str] = []
    """What else must be known."""
    ended: str = ""
    """Why it ended before all was measured; empty: it didn't."""
    advice: list[str] = []

    def remarks(self) -> list[tuple[str, list[str]]]:
        """Return all that is to be said beside the figures, with titles."""
        return [("Left out", self.left_out), ("Notes", self.notes), ("Advice", self.advice)]


def this_machine(devices: Mapping[str, Any]) -> Machine:
    """Return what can be told of this machine; `devices` is llmsnap's `/api/devices`."""
    gpus = [
        f"{one['device']}: {one['name'] or 'GPU'}, {(one['total_bytes'] or 0) / 2**30:.0f} GiB"
        + (f", PCIe {one['pcie_generation']} x{one['pcie_width']}" if one["pcie_width"] else "")
        for one in devices.get("devices", [])
        if str(one["device"]).startswith("gpu")
    ]
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=os.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        swap_bytes=psutil.swap_memory().total,
        gpus=gpus,
        link_bytes_per_s=_link_bytes_per_s(devices),
        driver=read_kernel().driver,
    )


def _link_bytes_per_s(devices: Mapping[str, Any]) -> float | None:
    speeds = [
        _LANE_BYTES_PER_S.get(one["pcie_max_generation"], 0.0) * one["pcie_max_width"]
        for one in devices.get("devices", [])
        if one.get("pcie_max_generation") and one.get("pcie_max_width")
    ]
    return max(speeds, default=0.0) or None


def write(report: Report, path: Path) -> None:
    """Write its JSON. Raises LlmsnapError."""
    _write(path, msgspec.json.format(msgspec.json.encode(report), indent=1))


def write_text(path: Path, text: str) -> None:
    """Write another form of a report. Raises LlmsnapError."""
    _write(path, text.encode())


def read(path: Path) -> Report:
    """Return the report in a file. Raises LlmsnapError."""
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise LlmsnapError(f"{path} can't be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise LlmsnapError(f"{path} isn't a report of `llmsnap bench --json`: {error}") from error
    if report.format != FORMAT:
        raise LlmsnapError(f"{path} was written by another llmsnap (form {report.format})")
    return report


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise LlmsnapError(f"{path} can't be written: {error.strerror}") from error


def _processor() -> str:
    try:
        lines = _WHAT_CPU.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
