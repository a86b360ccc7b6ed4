"""How NVIDIA GPUs fare: what NVML tells beside their memory, each figure for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pynvml

from llmsnap.memory.device import Vitals

_MILLI: Final = 1000


def read_vitals(handle: Any) -> Vitals:
    """Return what the driver tells of one GPU; what it doesn't is None, and no fault."""
    utilisation = _told(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power = _told(pynvml.nvmlDeviceGetPowerUsage, handle)
    limit = _told(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return Vitals(
        utilisation=None if utilisation is None else utilisation.gpu / 100,
        power_w=None if power is None else power / _MILLI,
        power_limit_w=None if limit is None else limit / _MILLI,
        temperature_c=_told(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        pcie_generation=_told(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        pcie_width=_told(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        pcie_max_generation=_told(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_max_width=_told(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
    )


def _told(ask: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return ask(*arguments)
    except pynvml.NVMLError:
        return None  # memory is what counts: a fault that matters shows there
