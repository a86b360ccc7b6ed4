"""Why NVIDIA's driver can't put a process to sleep, case by case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmsnap.sleep.cuda_wire import Hello
from llmsnap.sleep.eligibility import (
    Kernel,
    child_fault,
    driver_fault,
    gpus_fault,
    kernel_fault,
    read_kernel,
    visible_gpus,
)

LINUX = "Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP PREEMPT_DYNAMIC\n"
WSL = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@94) #1 SMP\n"
GVISOR = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (root@x)  Tue\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n"
)
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Sun May 12 04:38:45 UTC 2024\n"


@dataclass(frozen=True)
class Gpu:
    """One GPU as readings show it."""

    device: str
    uuid: str
    name: str = "4090"
    total_bytes: int = 24
    free_bytes: int = 24
    taken_at: float = 0.0
    processes: None = None
    mig: bool = False


FIRST, SECOND = Gpu("gpu0", "GPU-aaaa-1"), Gpu("gpu1", "GPU-bbbb-2")


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (Kernel(platform="linux", version=LINUX, module=OPEN.format("580.159.03")), ""),
        (Kernel(platform="linux", version=LINUX, module=PROPRIETARY.format("570.86.15")), ""),
        (Kernel(platform="linux", version=LINUX, module=""), ""),
        (Kernel(platform="linux", version=LINUX, module=PROPRIETARY.format("595.71.05")), ""),
        (Kernel(platform="linux", version=LINUX, module=OPEN.format("595.84")), ""),
        (Kernel(platform="linux", version=LINUX, module=OPEN.format("595.710.1")), ""),
        (Kernel(platform="linux", version=LINUX, module=OPEN.format("595.71.05")), "hang"),
        (Kernel(platform="linux", version=LINUX, module=OPEN.format("595.71")), "hang"),
        (Kernel(platform="linux", version=LINUX, module=PROPRIETARY.format("550.1")), "too old"),
        (Kernel(platform="darwin", version="", module=""), "Linux only, not on darwin"),
        (Kernel(platform="linux", version=WSL, module=""), "WSL"),
        (Kernel(platform="linux", version=GVISOR, module=""), "gVisor"),
    ],
    ids=lambda value: value.driver or value.platform if isinstance(value, Kernel) else value,
)
def test_the_system_must_be_able_to(kernel: Kernel, reason: str) -> None:
    """Linux, a driver that is new enough, and none that is known to harm the machine."""
    assert_says(kernel_fault(kernel), reason)


def test_the_kernel_is_read_from_proc(tmp_path: Path) -> None:
    """What it says of itself, and NVIDIA's module when it is loaded."""
    (tmp_path / "version").write_text(LINUX)
    kernel = read_kernel(tmp_path)
    assert (kernel.version, kernel.driver, kernel.has_open_module) == (LINUX, "", False)

    (tmp_path / "driver/nvidia").mkdir(parents=True)
    (tmp_path / "driver/nvidia/version").write_text(OPEN.format("580.159.03"))
    kernel = read_kernel(tmp_path)
    assert (kernel.driver, kernel.has_open_module) == ("580.159.03", True)


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(version=12080), ""),
        (Hello(version=13000), ""),
        (Hello(fault="libcuda.so.1: cannot open shared object file"), "isn't there"),
        (Hello(version=12040, missing=("cuCheckpointProcessLock",)), "CUDA 12.4.*too old"),
        (Hello(version=12080, missing=("cuCheckpointProcessLock",)), "too old"),
        (Hello(version=13000, init=100, init_name="CUDA_ERROR_NO_DEVICE"), "NO_DEVICE"),
    ],
    ids=["12.8", "13.0", "absent", "old", "incomplete", "no-device"],
)
def test_the_driver_must_be_able_to(hello: Hello, reason: str) -> None:
    """CUDA 12.8 or newer, with all five calls, and initialised."""
    assert_says(driver_fault(hello), reason)


@pytest.mark.parametrize("variable", ["GGML_CUDA_ENABLE_UNIFIED_MEMORY", "GGML_CUDA_P2P"])
@pytest.mark.parametrize("value", ["1", "0", ""])
def test_some_variables_rule_it_out(variable: str, value: str) -> None:
    """llama.cpp looks whether they are there, not what they say."""
    assert_says(child_fault({variable: value, "HOME": "/"}), variable)
    assert child_fault({"HOME": "/"}) == ""


@pytest.mark.parametrize(
    ("env", "gpus", "visible"),
    [
        ({}, [FIRST, SECOND], [FIRST, SECOND]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [FIRST], []),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [FIRST, SECOND], [SECOND]),
        ({"CUDA_VISIBLE_DEVICES": "1, 0"}, [FIRST, SECOND], [SECOND, FIRST]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bb"}, [FIRST, SECOND], [SECOND]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-"}, [FIRST, SECOND], []),
        ({"CUDA_VISIBLE_DEVICES": "-1,0"}, [FIRST], []),
        ({"CUDA_VISIBLE_DEVICES": "0,5,1"}, [FIRST, SECOND], [FIRST]),
    ],
    ids=["unset", "none", "index", "two", "prefix", "ambiguous", "minus-one", "invalid"],
)
def test_a_process_can_use_what_its_environment_names(
    env: dict[str, str], gpus: list[Gpu], visible: list[Gpu]
) -> None:
    """As CUDA reads CUDA_VISIBLE_DEVICES."""
    assert visible_gpus(env, gpus) == visible


def test_an_index_among_unlike_gpus_can_mean_any() -> None:
    """CUDA orders them by speed unless it is told to go by the bus."""
    gpus = [FIRST, Gpu("gpu1", "GPU-cccc", name="3060")]
    env = {"CUDA_VISIBLE_DEVICES": "1"}
    assert visible_gpus(env, gpus) == gpus
    assert visible_gpus({**env, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, gpus) == [gpus[1]]


def test_several_gpus_must_be_asked_for() -> None:
    """`sleep.multiGpu` allows them, except split in ways that are untested."""
    both = [FIRST, SECOND]
    assert gpus_fault([FIRST], ["llama-server", "-sm", "row"], multi_gpu=False) == ""
    assert_says(gpus_fault([], [], multi_gpu=True), "no GPU")
    assert_says(gpus_fault(both, [], multi_gpu=False), "2 GPUs.*sleep.multiGpu")
    assert gpus_fault(both, ["llama-server", "-sm", "layer"], multi_gpu=True) == ""
    assert_says(gpus_fault(both, ["x", "--split-mode", "row"], multi_gpu=True), "untested")


def test_a_split_card_is_refused() -> None:
    """The driver would answer "out of memory"."""
    assert_says(gpus_fault([Gpu("gpu3", "GPU-x", mig=True)], [], multi_gpu=True), "gpu3.*MIG")


def assert_says(fault: str, reason: str) -> None:
    """Check that `fault` tells `reason`, and is empty when there is none."""
    assert re.search(reason, fault) if reason else fault == ""
