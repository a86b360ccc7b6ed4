"""What the machine is made of, in llama-swap's words."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from llmsnap import __version__
from llmsnap.telemetry.metrics import Device

Record = dict[str, Any]

_CPUINFO: Final = Path("/proc/cpuinfo")
_CONTAINERS: Final = ("/.dockerenv", "/run/.containerenv")
_NO_GPUS: Final = frozenset({"host", "swap"})


def cpuinfo() -> str:
    """Return what Linux says of its processors; empty: nothing."""
    try:
        return _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def gpus_among(devices: Iterable[Device]) -> list[Device]:
    """Return those of `devices` that are GPUs."""
    return [device for device in devices if device.device not in _NO_GPUS]


def hardware(devices: Iterable[Device], processors: str) -> Record:
    """Return processor, memory and GPUs; `processors` is what `cpuinfo` returns.

    Memory is what this process may have of it at most.
    """
    parts = list(devices)
    place = "container" if any(map(os.path.exists, _CONTAINERS)) else "host"
    return {
        "schema_version": 1,
        "captured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "capture": {
            "scope": place,
            "method": "automatic",
            "detector": {"name": "llmsnap", "version": __version__},
        },
        "architecture": platform.machine(),
        "operating_system": platform.system().lower(),
        "environment": {"kind": place},
        "cpu": _processor(processors),
        "memory": {"capacity_bytes": sum(p.total_bytes for p in parts if p.device == "host")},
        "accelerators": [_gpu(index, gpu) for index, gpu in enumerate(gpus_among(parts))],
    }


def _processor(text: str) -> Record:
    blocks = [_fields(block) for block in text.split("\n\n") if "processor" in block]
    first = blocks[0] if blocks else {}
    cores = {
        (block.get("physical id", "0"), block.get("core id", str(place)))
        for place, block in enumerate(blocks)
    }
    return {
        "vendor": first.get("vendor_id", ""),
        "model": first.get("model name", platform.processor()),
        "socket_count": len({socket for socket, _ in cores}),
        "physical_core_count": len(cores),
        "logical_thread_count": len(blocks) or os.cpu_count() or 0,
    }


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _gpu(index: int, gpu: Device) -> Record:
    return {
        "index": index,
        "kind": "gpu",
        "vendor": "NVIDIA",  # no others are read
        "model": gpu.name,
        "architecture": "",
        "memory": {"kind": "dedicated", "capacity_bytes": gpu.total_bytes},
        "driver": {"name": "nvidia", "version": ""},
        "power_limit_watts": gpu.vitals.power_limit_w,
    }
