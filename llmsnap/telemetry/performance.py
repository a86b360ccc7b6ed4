"""How busy the machine was in the last hour, sample by sample, in llama-swap's words."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from llmsnap.telemetry.hardware import gpus_among
from llmsnap.telemetry.metrics import Device

logger = logging.getLogger(__name__)

_KEPT_S: Final = 3600.0
_MIB: Final = 1024**2
_UNKNOWN: Final = -1


class Interface(Struct, frozen=True):
    """What went over one network interface since it is up."""

    name: str
    bytes_recv: int
    bytes_sent: int


class SystemSample(Struct, frozen=True, kw_only=True):
    """The machine at one moment."""

    timestamp: datetime
    cpu_util_per_core: list[float]
    mem_total_mb: int
    mem_used_mb: int
    mem_free_mb: int
    swap_total_mb: int
    swap_used_mb: int
    load_avg_1: float
    load_avg_5: float
    load_avg_15: float
    net_io: list[Interface]


class GpuSample(Struct, frozen=True, kw_only=True):
    """One GPU at one moment; -1: its driver doesn't tell."""

    timestamp: datetime
    id: int
    name: str
    uuid: str
    temp_c: float
    vram_temp_c: float = _UNKNOWN
    gpu_util_pct: float
    mem_util_pct: float
    mem_used_mb: int
    mem_total_mb: int
    fan_speed_pct: float = _UNKNOWN
    power_draw_w: float


class Performance:
    """Takes a sample every `every_s` seconds while `run` runs, and keeps those of an hour.

    `devices` are those that were seen last; nothing is asked for here.
    """

    def __init__(self, every_s: float, devices: Callable[[], Iterable[Device]]) -> None:
        self._every_s = every_s
        self._devices = devices
        kept = round(_KEPT_S / every_s)
        self._system: deque[SystemSample] = deque(maxlen=kept)
        self._gpus: deque[list[GpuSample]] = deque(maxlen=kept)

    async def run(self) -> None:
        """Take samples until cancelled."""
        await asyncio.sleep(self._every_s)
        await asyncio.to_thread(_system_sample)  # a processor's share is that since the last look
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.sample()
            except Exception:  # a task's root: the next sample may go well
                logger.exception("the machine's load can't be read")

    async def sample(self) -> None:
        """Take one sample."""
        system = await asyncio.to_thread(_system_sample)
        self._system.append(system)
        gpus = gpus_among(self._devices())
        self._gpus.append([_gpu_sample(gpu, system.timestamp) for gpu in gpus])

    def system(self, after: datetime | None = None) -> list[SystemSample]:
        """Return the machine's samples, those taken after that moment."""
        return [one for one in self._system if after is None or one.timestamp > after]

    def gpus(self, after: datetime | None = None) -> list[GpuSample]:
        """Return the GPUs' samples, those taken after that moment."""
        every = (one for sample in self._gpus for one in sample)
        return [one for one in every if after is None or one.timestamp > after]


def _system_sample() -> SystemSample:
    import psutil  # here, in a thread: nobody waits for it

    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    load = psutil.getloadavg()
    return SystemSample(
        timestamp=datetime.now(UTC),
        cpu_util_per_core=psutil.cpu_percent(percpu=True),
        mem_total_mb=memory.total // _MIB,
        mem_used_mb=(memory.total - memory.available) // _MIB,
        mem_free_mb=memory.available // _MIB,
        swap_total_mb=swap.total // _MIB,
        swap_used_mb=swap.used // _MIB,
        load_avg_1=load[0],
        load_avg_5=load[1],
        load_avg_15=load[2],
        net_io=[
            Interface(name, one.bytes_recv, one.bytes_sent)
            for name, one in sorted(psutil.net_io_counters(pernic=True).items())
        ],
    )


def _gpu_sample(gpu: Device, now: datetime) -> GpuSample:
    vitals, total = gpu.vitals, gpu.total_bytes
    used = total - gpu.free_bytes
    share = vitals.utilisation
    return GpuSample(
        timestamp=now,
        id=int(gpu.device.removeprefix("gpu")),
        name=gpu.name,
        uuid=gpu.uuid,
        temp_c=_known(vitals.temperature_c),
        gpu_util_pct=_UNKNOWN if share is None else share * 100,
        mem_util_pct=used / total * 100 if total else _UNKNOWN,
        mem_used_mb=used // _MIB,
        mem_total_mb=total // _MIB,
        power_draw_w=_known(vitals.power_w),
    )


def _known(value: float | None) -> float:
    return _UNKNOWN if value is None else value
