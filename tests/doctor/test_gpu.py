"""What is said of GPUs and their driver."""

from __future__ import annotations

import pytest

from llmsnap.doctor.finding import Finding, Status
from llmsnap.doctor.gpu import findings, look, self_tests
from llmsnap.memory.device import Readings
from llmsnap.sleep.cuda_client import CallLost
from llmsnap.sleep.cuda_wire import Hello
from llmsnap.sleep.eligibility import Kernel
from tests.doctor.places import CAN_CHECKPOINT, OPEN_580, FakeCuda, FakeProbe, gpu


def kernel(module: str = OPEN_580, *, version: str = "Linux version 6.8.0") -> Kernel:
    """A Linux with this driver."""
    return Kernel(platform="linux", version=version, module=module)


async def gpus(
    probe: FakeProbe, machine: Kernel, says: Hello | CallLost = CAN_CHECKPOINT
) -> list[Finding]:
    """What is said of them."""
    return findings(await look(probe, machine, FakeCuda(says)))


async def test_without_an_nvidia_gpu_there_is_one_line() -> None:
    """It is nothing bad: models run on the CPU, or on another GPU. No driver is called."""
    readings = Readings(fault="there is no NVIDIA driver: libnvidia-ml.so.1 isn't found")
    cuda = FakeCuda()

    (found,) = findings(await look(FakeProbe(readings), kernel(""), cuda))

    assert not cuda.asked

    assert (found.check, found.status) == ("gpu", Status.OK)
    assert "no NVIDIA GPU" in found.found


async def test_each_gpu_has_a_line() -> None:
    """With the driver, and whether it can checkpoint."""
    found = await gpus(FakeProbe(Readings(devices=(gpu(), gpu("gpu1")))), kernel())

    assert found == [
        Finding("gpu0", Status.OK, "NVIDIA Some 24GB, 20 GiB of 24 GiB free"),
        Finding("gpu1", Status.OK, "NVIDIA Some 24GB, 20 GiB of 24 GiB free"),
        Finding("driver", Status.OK, "580.95.05, open kernel module"),
        Finding("sleep by cuda", Status.OK, "the driver can checkpoint processes"),
    ]


async def test_a_driver_that_cant_be_read() -> None:
    """The module is there, but its library doesn't fit, say."""
    readings = Readings(fault="the NVIDIA driver was upgraded; reboot")

    found = await gpus(FakeProbe(readings), kernel())

    assert found[0] == Finding("gpu", Status.WARN, "the NVIDIA driver was upgraded", "reboot")


async def test_notes_are_told() -> None:
    """What couldn't be read of a GPU that otherwise answers."""
    readings = Readings(devices=(gpu(),), notes=("gpu0: bytes by process aren't known",))

    found = await gpus(FakeProbe(readings), kernel())

    assert found[1] == Finding("gpu", Status.WARN, "gpu0: bytes by process aren't known")


async def test_a_driver_without_gpus() -> None:
    """It may have lost them."""
    found = await gpus(FakeProbe(Readings()), kernel())

    assert found[0] == Finding("gpu", Status.WARN, "the driver knows no GPU")


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (kernel(OPEN_580.replace("580.95.05", "550.54.14")), "driver 550.54.14 is too old"),
        (kernel(version="Linux version 6.8-microsoft-WSL2"), "NVIDIA's driver for WSL doesn't"),
    ],
)
async def test_drivers_that_cant_put_to_sleep(machine: Kernel, says: str) -> None:
    """With the reason; models there are stopped and started."""
    found = await gpus(FakeProbe(Readings(devices=(gpu(),))), machine)

    assert (found[-1].check, found[-1].status) == ("sleep by cuda", Status.WARN)
    assert found[-1].found.startswith(says)


async def test_a_split_gpu_cant_sleep() -> None:
    """The others can."""
    readings = Readings(devices=(gpu(), gpu("gpu1", mig=True)))

    found = await gpus(FakeProbe(readings), kernel())

    assert found[-1].status is Status.WARN
    assert found[-1].found.startswith("gpu1: split (MIG)")


async def test_a_driver_whose_version_nobody_tells() -> None:
    """NVML has the GPU, /proc has nothing, as in some containers."""
    found = await gpus(FakeProbe(Readings(devices=(gpu(),))), kernel(""))

    assert [each.check for each in found] == ["gpu0", "driver", "sleep by cuda"]
    assert found[1].status is Status.WARN


@pytest.mark.parametrize(
    ("says", "found", "remedy"),
    [
        (Hello(fault="libcuda.so.1: no such file"), "NVIDIA's driver library isn't there: ", ""),
        (Hello(version=12070), "the driver (for CUDA 12.7) is too old: ", ""),
        (
            Hello(version=13000, init=999, init_name="UNKNOWN"),
            "CUDA can't be initialised: UNKNOWN",
            "see what `nvidia-smi` says",
        ),
        (
            CallLost("the CUDA process doesn't start; see its output"),
            "the CUDA process doesn't",
            "",
        ),
    ],
)
async def test_what_the_driver_says_of_itself_counts(
    says: Hello | CallLost, found: str, remedy: str
) -> None:
    """It is asked in a process of its own, and one that hangs is a finding like others."""
    last = (await gpus(FakeProbe(Readings(devices=(gpu(),))), kernel(), says))[-1]

    assert (last.check, last.status) == ("sleep by cuda", Status.WARN)
    assert last.found.startswith(found)
    assert last.remedy.startswith(remedy)


async def test_a_self_test_is_run_on_each_gpu_that_isnt_split() -> None:
    """What goes wrong with one is told with its name."""
    devices = (gpu(), gpu("gpu1"), gpu("gpu2", mig=True))
    found = await look(FakeProbe(Readings(devices=devices)), kernel(), FakeCuda())

    async def test(uuid: str) -> str:
        return "it came back spoiled" if uuid == "GPU-gpu1" else ""

    good, bad = await self_tests(found, test)

    assert (good.check, good.status) == ("self-test gpu0", Status.OK)
    assert (bad.check, bad.status) == ("self-test gpu1", Status.WARN)
    assert bad.found.endswith("it came back spoiled")


async def test_no_self_test_where_there_is_nothing_to_try() -> None:
    """No GPU, a driver that can't, or nothing but split GPUs."""

    async def test(uuid: str) -> str:
        raise AssertionError(uuid)

    none = await look(FakeProbe(Readings()), kernel(""), FakeCuda())
    old = await look(
        FakeProbe(Readings(devices=(gpu(),))), kernel(), FakeCuda(Hello(version=12070))
    )

    split = await look(FakeProbe(Readings(devices=(gpu(mig=True),))), kernel(), FakeCuda())

    assert [each.status for each in await self_tests(split, test)] == [Status.WARN]
    assert [each.status for each in await self_tests(none, test)] == [Status.OK]
    assert [each.status for each in await self_tests(old, test)] == [Status.WARN]
