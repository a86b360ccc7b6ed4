"""Builds the sleep drivers of this machine, when the first model asks how it can sleep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from llmsnap.config.schema import Config
from llmsnap.memory.machine import Machine
from llmsnap.runtime import ports
from llmsnap.runtime.plan import check_path
from llmsnap.sleep.choose import Choice, Mode, choose
from llmsnap.sleep.driver import SleepDriver, Target
from llmsnap.sleep.endpoints import EndpointsDriver
from llmsnap.sleep.pageout import PageOutDriver
from llmsnap.sleep.recipe import recipes_for
from llmsnap.sleep.secondstep import SecondStep

_HALF: Final = 2


class Drivers:
    """The ways out of memory that there are, shared by all models.

    CUDA is imported when the first model is up: by then nobody waits for it.
    """

    def __init__(self, config: Config, machine: Machine, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._host = machine.host
        self._gpus = machine.gpus
        self._built: dict[str, SleepDriver] = {}

    def chooser(self, model: str) -> Chooser | None:
        """Return what finds how `model` sleeps; None: it is not to sleep."""
        mode = self._config.models[model].sleep_mode
        return None if mode == "off" else Chooser(self, mode)

    def tiers(self) -> dict[str, int]:
        """Return how many bytes there are for what sleeps, by tier."""
        budget = self._config.sleep.ram_budget_bytes
        if budget is None:
            budget = self._host.ram().total_bytes // _HALF
        return {"ram": budget, "swap": self._host.swap().free_bytes}

    def all(self) -> Mapping[str, SleepDriver]:
        """Return every driver by its name."""
        if not self._built:
            for driver in (self._endpoints(), self._cuda(), self._pageout()):
                self._built[driver.name] = driver
        return self._built

    async def aclose(self) -> None:
        """Let go of what the drivers hold; sleeping processes stay as they are."""
        for driver in self._built.values():
            await driver.aclose()

    def _endpoints(self) -> SleepDriver:
        return EndpointsDriver(recipes_for(self._config, check_path))

    def _cuda(self) -> SleepDriver:
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


class Chooser:
    """Finds how one model's process sleeps."""

    def __init__(self, drivers: Drivers, mode: Mode) -> None:
        self._drivers = drivers
        self._mode = mode

    async def choose(self, target: Target) -> Choice:
        """Return the best driver that works for this process, and why not the others."""
        return await choose(self._mode, target, self._drivers.all())


async def listens(pids: Collection[int], host: str, port: int) -> bool:
    """Whether one of `pids` listens there, and the host is this machine."""
    addresses = await ports.local_addresses(host)
    return bool(addresses) and ports.listens(pids, addresses, port)
