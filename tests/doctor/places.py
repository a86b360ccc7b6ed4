"""A /proc and a /sys of our own, and GPUs as told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from llmsnap.memory.device import Reading, Readings
from llmsnap.sleep.cuda_client import CallLost
from llmsnap.sleep.cuda_wire import Hello

GIB = 2**30
OPEN_580 = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (builder@host)
GCC version:  gcc version 13.3.0
"""


CAN_CHECKPOINT = Hello(version=13000)


@dataclass
class FakeProbe:
    """Reads what it was given."""

    readings: Readings = field(default_factory=Readings)

    async def read(self) -> Readings:
        """Return that."""
        return self.readings

    async def aclose(self) -> None:
        """Hold nothing."""


@dataclass
class FakeCuda:
    """A driver that says what it was told to, or nothing in time."""

    says: Hello | CallLost = CAN_CHECKPOINT
    asked: int = 0

    async def hello(self) -> Hello:
        """Return or raise that."""
        self.asked += 1
        if isinstance(self.says, CallLost):
            raise self.says
        return self.says


def gpu(device: str = "gpu0", *, mig: bool = False) -> Reading:
    """A GPU with 20 of 24 GiB free."""
    return Reading(
        device=device,
        total_bytes=24 * GIB,
        free_bytes=20 * GIB,
        taken_at=0.0,
        name="NVIDIA Some 24GB",
        uuid=f"GPU-{device}",
        mig=mig,
    )


def write(folder: Path, **files: str) -> Path:
    """Write files below `folder`, with `__` for each slash in their names; return `folder`."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def meminfo(*, total_gib: int = 64, swap_gib: float = 0, free_gib: float = 0) -> str:
    """The lines of /proc/meminfo that matter."""
    kib = 2**20
    return (
        f"MemTotal:       {total_gib * kib} kB\nMemAvailable:   {total_gib * kib // 2} kB\n"
        f"SwapTotal:      {round(swap_gib * kib)} kB\nSwapFree:  {round(free_gib * kib)} kB\n"
    )
