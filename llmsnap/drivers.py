"""Builds the sleep drivers of this machine, when the first model starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from llmsnap.config.schema import Config
from llmsnap.memory.machine import Machine
from llmsnap.runtime import ports
from llmsnap.runtime.plan import check_path
from llmsnap.sleep.choose import Choice, Mode, allowed, choose, take_over
from llmsnap.sleep.driver import Memo, SleepDriver, Target
from llmsnap.sleep.endpoints import EndpointsDriver
from llmsnap.sleep.pageout import PageOutDriver
from llmsnap.sleep.recipe import Recipe, recipes_for
from llmsnap.sleep.secondstep import SecondStep

if TYPE_CHECKING:
    from llmsnap.sleep.cuda import CudaDriver

_HALF: Final = 2


class Drivers:
    """The ways out of memory that there are, shared by all models.

    Where there is an NVIDIA GPU, CUDA starts with the first model: how it sleeps must be known
    soon after it is up, should another one want its room at once.
    """

    def __init__(self, config: Config, machine: Machine, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._host = machine.host
        self._gpus = machine.gpus
        self._built: dict[str, SleepDriver] = {}
        self._cuda: CudaDriver | None = None
        self._endpoints: EndpointsDriver | None = None
        self._recipes = recipes_for(config, check_path)
        self._swap_bytes = machine.host.swap().free_bytes
        self._prepared = False

    def chooser(self, model: str) -> Chooser | None:
        """Return what finds how `model` sleeps; None: it is not to sleep."""
        mode = self._config.models[model].sleep_mode
        if mode == "off":
            return None
        multi_gpu = self._config.sleep.multi_gpu
        return Chooser(self, mode, self._recipes.get(model), multi_gpu=multi_gpu)

    def adopt(self, config: Config) -> None:
        """Go by other settings; what sleeps wakes by the driver that put it to sleep."""
        self._config = config
        self._recipes = recipes_for(config, check_path)
        if self._endpoints is not None:
            self._endpoints.adopt(self._recipes)
        if self._cuda is not None:
            self._cuda.allow_multi_gpu(allowed=config.sleep.multi_gpu)

    def tiers(self, config: Config) -> dict[str, int]:
        """Return how many bytes `config` has for what sleeps, by tier.

        Of swap it is what was free at the start.
        """
        budget = config.sleep.ram_budget_bytes
        if budget is None:
            budget = self._host.ram().total_bytes // _HALF
        return {"ram": budget, "swap": self._swap_bytes}

    def all(self) -> Mapping[str, SleepDriver]:
        """Return every driver by its name."""
        if not self._built:
            self._cuda = self._cuda_driver()
            self._endpoints = EndpointsDriver(self._recipes)
            for driver in (self._endpoints, self._cuda, self._pageout()):
                self._built[driver.name] = driver
        return self._built

    async def prepare_cuda(self) -> None:
        """Start CUDA, if there is a GPU and it isn't started yet."""
        if self._prepared:
            return
        self._prepared = True
        if (await self._gpus.read()).devices:
            self.all()
            assert self._cuda is not None
            await self._cuda.prepare()

    async def aclose(self) -> None:
        """Let go of what the drivers hold; sleeping processes stay as they are."""
        for driver in self._built.values():
            await driver.aclose()

    def _cuda_driver(self) -> CudaDriver:
        from llmsnap.sleep.cuda import CudaDriver
        from llmsnap.sleep.cuda_client import CudaClient

        return CudaDriver(
            CudaClient(),
            gpus=self._gpus,
            host=self._host,
            clock=self._clock,
            below=SecondStep(self._host, listens),
            multi_gpu=self._config.sleep.multi_gpu,
        )

    def _pageout(self) -> SleepDriver:
        return PageOutDriver(self._host, listens)


@dataclass(frozen=True, slots=True)
class Chooser:
    """Finds how one model's process sleeps; equal ones find the same."""

    drivers: Drivers
    mode: Mode
    recipe: Recipe | None = None
    """What the driver of endpoints goes by."""
    multi_gpu: bool = False

    async def prepare(self) -> None:
        """Start CUDA, if this model may sleep by it."""
        if "cuda" in allowed(self.mode):
            await self.drivers.prepare_cuda()

    async def choose(self, target: Target) -> Choice:
        """Return the best driver that works for this process, and why not the others."""
        return await choose(self.mode, target, self.drivers.all())

    async def take_over(self, driver: str, target: Target, memo: Memo) -> Choice:
        """Have `driver` take charge of a process that an earlier proxy put to sleep by it."""
        return await take_over(self.mode, driver, target, memo, self.drivers.all())


async def listens(pids: Collection[int], host: str, port: int) -> bool:
    """Whether one of `pids` listens there, and the host is this machine."""
    addresses = await ports.local_addresses(host)
    return bool(addresses) and ports.listens(pids, addresses, port)
