"""Whether NVIDIA's driver can put a process to sleep here: functions of plain values.

Each returns why not, in words for the operator with the remedy; empty when nothing is in the way.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from llmsnap.sleep.cuda_api import FIRST_VERSION
from llmsnap.sleep.cuda_wire import Hello
from llmsnap.sleep.readings import GpuMemory

_FIRST_DRIVER: Final = 570
_GVISOR: Final = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"
"""What gVisor says it is, whatever its version."""


@dataclass(frozen=True, slots=True)
class Denied:
    """Drivers that harm the machine when a woken process ends."""

    version: re.Pattern[str]
    open_only: bool
    why: str


_DENIED: Final = (
    Denied(
        re.compile(r"595\.71(\.|$)"),
        open_only=True,
        why="it can hang the whole machine when a woken process ends",
    ),
)

_SPOILERS: Final = {
    "GGML_CUDA_ENABLE_UNIFIED_MEMORY": "the driver can't checkpoint managed memory",
    "GGML_CUDA_P2P": "checkpoints with peer access between GPUs are untested",
}
"""Variables that count for llama.cpp whatever their value, and why they rule sleep out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What the running kernel says of itself and of NVIDIA's module; both may be empty."""

    platform: str
    version: str
    module: str

    @property
    def driver(self) -> str:
        """The version of NVIDIA's kernel module; empty when it doesn't tell."""
        found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", self.module)
        return found[1] if found else ""

    @property
    def has_open_module(self) -> bool:
        """Whether it is the module with open sources."""
        return "Open Kernel Module" in self.module


def read_kernel(proc: Path = Path("/proc")) -> Kernel:
    """Return what the kernel says; `proc` is where it says it."""
    texts = {"version": "", "driver/nvidia/version": ""}
    for name in texts:
        with suppress(OSError):
            texts[name] = (proc / name).read_text(errors="replace")
    version, module = texts.values()
    return Kernel(platform=sys.platform, version=version, module=module)


def kernel_fault(kernel: Kernel) -> str:
    """Return why no process on this system can be put to sleep."""
    if kernel.platform != "linux":
        return f"NVIDIA's driver checkpoints processes on Linux only, not on {kernel.platform}"
    if "microsoft" in kernel.version.lower():
        return "NVIDIA's driver for WSL doesn't checkpoint processes; run llmsnap on Linux itself"
    if kernel.version.startswith(_GVISOR):
        return "checkpoints don't work inside gVisor; run llmsnap outside of it"
    if not (driver := kernel.driver):
        return ""
    for denied in _DENIED:
        if denied.version.match(driver) and (kernel.has_open_module or not denied.open_only):
            kind = "open driver" if denied.open_only else "driver"
            return f"the {kind} {driver} isn't used for sleep: {denied.why}; install another one"
    if int(driver.split(".")[0]) < _FIRST_DRIVER:
        return f"driver {driver} is too old: sleep needs {_FIRST_DRIVER} or newer"
    return ""


def driver_fault(hello: Hello) -> str:
    """Return why the driver that was found can't checkpoint."""
    if hello.fault:
        return f"NVIDIA's driver library isn't there: {hello.fault}"
    if hello.version < FIRST_VERSION or hello.missing:
        cuda = f"{hello.version // 1000}.{hello.version % 1000 // 10}"
        return (
            f"the driver (for CUDA {cuda}) is too old: sleep needs {_FIRST_DRIVER} (CUDA 12.8) "
            "or newer"
        )
    if hello.init:
        return f"CUDA can't be initialised: {hello.init_name}; see what `nvidia-smi` says"
    return ""


def child_fault(env: Mapping[str, str]) -> str:
    """Return what in a model's own environment rules sleep out."""
    for variable, why in _SPOILERS.items():
        if variable in env:
            return f"{variable} is set, and {why}; take it out of the model's `env`"
    return ""


def visible_gpus(env: Mapping[str, str], gpus: Sequence[GpuMemory]) -> list[GpuMemory]:
    """Return which of `gpus` a process with `env` can use.

    An index means the place on the PCI bus, unless CUDA may order unlike GPUs by speed: then all
    of them are returned, because it isn't known which one is meant.
    """
    words = env.get("CUDA_VISIBLE_DEVICES")
    if words is None:
        return list(gpus)
    by_bus = env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in gpus}) < 2
    visible: list[GpuMemory] = []
    for word in (word.strip() for word in words.split(",")):
        if word.isdecimal() and not by_bus:
            return list(gpus)
        meant = [gpu for place, gpu in enumerate(gpus) if _means(word, place, gpu)]
        if len(meant) != 1:
            break  # CUDA hides what follows an entry that it doesn't understand
        visible += meant
    return visible


def gpus_fault(visible: Sequence[GpuMemory], argv: Sequence[str], *, multi_gpu: bool) -> str:
    """Return why a process that can use `visible`, started with `argv`, isn't put to sleep."""
    if not visible:
        return "it can use no GPU; see CUDA_VISIBLE_DEVICES in the model's `env`"
    if split := [gpu.device for gpu in visible if gpu.mig]:
        return f"{split[0]} is split (MIG), and the driver can't checkpoint then; switch MIG off"
    if len(visible) > 1 and not multi_gpu:
        return (
            f"it can use {len(visible)} GPUs; give it one by CUDA_VISIBLE_DEVICES=GPU-… in the "
            "model's `env`, or set `sleep.multiGpu: true`"
        )
    for flag, value in pairwise(argv if len(visible) > 1 else ()):
        if flag in ("-sm", "--split-mode") and value in ("row", "tensor"):
            return f"checkpoints with {flag} {value} are untested; use `{flag} layer`"
    return ""


def _means(word: str, place: int, gpu: GpuMemory) -> bool:
    if word.isdecimal():
        return int(word) == place
    return word.startswith("GPU-") and gpu.uuid.startswith(word)
