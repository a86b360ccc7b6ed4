"""GPUs with memory of their own of which nobody here can say how full they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_OWN_MEMORY: Final = {"device/mem_info_vram_total": "AMD", "lmem_total_bytes": "Intel"}
"""Files of cards under /sys/class/drm, as the drivers amdgpu and i915 write them."""
_LEAST_BYTES: Final = 3 * 1024**3
"""Less is what a chip beside the processor borrows of RAM, which is measured."""


def unmeasured_gpu(*, nvidia_is_read: bool, root: Path = Path("/")) -> str:
    """Return what to call a GPU that models may use, though how full it is can't be read.

    Empty where there is none. `nvidia_is_read`: NVML tells of NVIDIA's.
    """
    if not nvidia_is_read and (root / "dev" / "nvidiactl").exists():
        return "NVIDIA's GPU"
    for card in sorted((root / "sys" / "class" / "drm").glob("card[0-9]*")):
        for name, maker in _OWN_MEMORY.items():
            if _number(card / name) >= _LEAST_BYTES:
                return f"{maker}'s GPU ({card.name})"
    return ""


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0
