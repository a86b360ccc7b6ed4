"""Which process of a model holds GPU memory: what readings and states say, put together."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from llmsnap.sleep.cuda_api import Result
from llmsnap.sleep.cuda_client import CallLost, CudaClient
from llmsnap.sleep.cuda_holding import Holding, Ineligible, find_holding, read_now
from llmsnap.sleep.cuda_wire import Reply
from llmsnap.sleep.driver import Target
from llmsnap.sleep.processes import look


@dataclass(frozen=True)
class Gpu:
    """One GPU as readings show it."""

    device: str = "gpu0"
    uuid: str = "GPU-1"
    name: str = "4090"
    total_bytes: int = 1000
    free_bytes: int = 400
    taken_at: float = 0.0
    processes: Mapping[int, int] | None = None
    mig: bool = False


@dataclass
class States(CudaClient):
    """Knows the result of a state query by pid; others have no context."""

    results: dict[int, int] = field(default_factory=dict)
    lost: bool = False

    async def state(self, pid: int, *, deadline_s: float) -> Reply:
        if self.lost:
            raise CallLost("no answer")
        result = self.results.get(pid, Result.NOT_INITIALIZED)
        return Reply(id=1, result=result, name="", seconds=0)


@pytest.fixture
def child() -> Iterator[int]:
    """A process below this one."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


async def find(
    gpus: Sequence[Gpu], states: States | None = None, *, multi_gpu: bool = False
) -> Holding:
    """Find what this process and those below it hold."""
    target = Target(
        model="m", generation=1, pid=os.getpid(), argv=(), env={}, host="", port=1, base_url=""
    )
    return await find_holding(target, gpus, states or States(), multi_gpu=multi_gpu)


async def test_nvml_names_the_process_and_its_bytes(child: int) -> None:
    """Whichever of the family it is; strangers and empty entries don't count."""
    gpus = (
        Gpu(processes={child: 50, 1: 500, os.getpid(): 0}),
        Gpu("gpu1", "GPU-2", processes={child: 7}),
    )
    holding = await find(gpus, multi_gpu=True)
    assert (holding.pid, holding.bytes, holding.exact) == (child, {"gpu0": 50, "gpu1": 7}, True)
    assert holding.total_bytes == 57
    assert holding.is_here


async def test_else_the_checkpoint_api_does(child: int) -> None:
    """Then all that is used of the GPU is the bound."""
    holding = await find([Gpu()], States(results={child: 0}))
    assert (holding.pid, holding.bytes, holding.exact) == (child, {"gpu0": 600}, False)


async def test_what_can_not_be_asked_is_not_put_to_sleep(child: int) -> None:
    """No answer is no for now; no permission is no for good."""
    with pytest.raises(Ineligible, match="no answer") as caught:
        await find([Gpu()], States(lost=True))
    assert not caught.value.for_good
    with pytest.raises(Ineligible, match="run it as the user of llmsnap") as caught:
        await find([Gpu()], States(results={child: Result.OPERATING_SYSTEM}))
    assert caught.value.for_good


@pytest.mark.parametrize(
    ("gpus", "words"),
    [([], "no GPU"), ([Gpu(processes={})], "no process of it holds")],
    ids=["no-gpu", "nobody"],
)
async def test_without_gpu_memory_there_is_nothing_to_move(gpus: list[Gpu], words: str) -> None:
    """The reason says which it is."""
    with pytest.raises(Ineligible, match=words):
        await find(gpus)


@dataclass(frozen=True)
class Told:
    """What NVML told, and is asked for."""

    devices: tuple[Gpu, ...] = ()
    fault: str = ""
    stale: bool = False

    async def read(self) -> Told:
        return self


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (Told(fault="no driver"), "no driver"),
        (Told((Gpu(),), stale=True), "NVML doesn't answer"),
        (Told((Gpu(taken_at=100), Gpu(taken_at=99))), "NVML doesn't answer"),
    ],
    ids=["fault", "stale", "before-the-question"],
)
async def test_only_what_is_known_now_counts(told: Told, words: str) -> None:
    """Figures from before the question may be of another time, stale or not."""
    with pytest.raises(Ineligible, match=words):
        await read_now(told, lambda: 100)


async def test_figures_from_the_moment_of_the_question_count() -> None:
    """Clocks have steps."""
    told = Told((Gpu(taken_at=100),))
    assert await read_now(told, lambda: 100) == told.devices


def test_a_holding_is_of_one_process_and_not_of_its_namesake(child: int) -> None:
    """A pid that was given out anew is somebody else."""
    seen = look(child)
    assert seen is not None
    assert Holding(child, seen.started, {}, exact=True).is_here
    assert not Holding(child, seen.started - 1, {}, exact=True).is_here
