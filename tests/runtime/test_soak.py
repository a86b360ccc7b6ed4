"""Two thousand requests to eight models on two cards, with everything that can happen to memory.

Supervisor, scheduler, watch and settling are the real ones, on virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from llmsnap.config.schema import MemoryConfig
from llmsnap.core.constraints import Free
from llmsnap.core.messages import Action, Event, ModelSpec
from llmsnap.core.schedule import Schedule
from llmsnap.core.scheduler import Scheduler
from llmsnap.memory.capacity import capacities
from llmsnap.memory.footprints import Footprints, Source, Subject
from llmsnap.memory.identity import Command
from llmsnap.runtime.settling import Settling
from llmsnap.runtime.supervisor import Supervisor
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.watch import Watch
from tests.helpers.virtualtime import run
from tests.helpers.waiting import eventually
from tests.runtime.cards import GIB, Cards, Server
from tests.runtime.test_needs import Memory

REQUESTS = 2000
CLIENTS = 10
MODELS = {
    **{f"m{n}": {f"gpu{n % 2}": size * GIB} for n, size in enumerate((5, 6, 8, 9, 11, 12, 14))},
    "wide": {"gpu0": 7 * GIB, "gpu1": 8 * GIB},
}
"""What each takes, which nobody says."""


class Checked(Scheduler):
    """A scheduler whose invariants are looked at after every event."""

    def handle(self, event: Event) -> list[Action]:
        """Take in one event."""
        actions = super().handle(event)
        self.check_invariants()
        return actions


class Soak:
    """One run."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        self.rng = random.Random(seed)
        self.cards = Cards(self.rng, loop.time)
        self.background = Background()
        self.served: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        devices = {"gpu0": self.cards.reading("gpu0"), "gpu1": self.cards.reading("gpu1")}
        capacity = capacities(MemoryConfig(), devices, asleep_bytes=0)
        self.scheduler = Checked(
            [ModelSpec(name=name, devices=tuple(uses)) for name, uses in MODELS.items()],
            capacity=capacity,
            tiers={"ram": 200 * GIB},
            schedule=Schedule(max_wait_s=0),
            constraints=Free(),
            clock=loop.time,
        )
        self.supervisor = Supervisor(self.scheduler, self.background)
        subjects = {
            name: Subject(command=Command(argv=[name], env={}, own={}, port=1)) for name in MODELS
        }
        self.footprints = Footprints(subjects, Memory(), capacity=lambda: capacity)
        self.watch = Watch(self.cards, self.supervisor, self.footprints, MemoryConfig(), capacity)
        settling = Settling(
            self.watch,
            self.supervisor,
            self.background,
            self.supervisor.post,
            timeout_s=10.0,
            clock=loop.time,
        )
        self.supervisor.watch(self.watch.moved)
        self.supervisor.supervise(
            {
                name: Server(name, uses, self.cards, self.background, settling.report)
                for name, uses in MODELS.items()
            }
        )

    async def run(self) -> None:
        """Serve all requests while things happen to the cards."""
        self.background.spawn(self.watch.run(), name="watch")
        self.background.spawn(self._trouble(), name="trouble")
        numbers = iter(range(REQUESTS))
        await asyncio.gather(*(self._client(numbers) for _ in range(CLIENTS)))
        self.scheduler.check_invariants()
        await self.supervisor.shutdown(0)

    async def _client(self, numbers: Iterator[int]) -> None:
        """One after the other, in bursts to the same model, as people and agents ask."""
        names = list(MODELS)
        for _ in numbers:
            if self.rng.random() < 0.4:
                self.rng.shuffle(names)
            async with self.supervisor.lease(names[0]):
                await asyncio.sleep(self.rng.lognormvariate(0, 1))
            self.served[names[0]] += 1
            await asyncio.sleep(self.rng.choice([0.0, 1.0, 3.0, 10.0]))

    def _knows_all(self) -> bool:
        figures = map(self.footprints.figure, MODELS)
        return all(figure.source is Source.LEARNED for figure in figures)

    async def _trouble(self) -> None:
        """One thing after the other, as soon as it is known what each model needs."""
        await eventually(self._knows_all, timeout_s=1e6)
        cards = self.cards
        while True:
            await asyncio.sleep(60)
            cards.wanted["gpu0"] = 10 * GIB
            await asyncio.sleep(120)
            self.seen["foreign"] += cards.foreign["gpu0"] > 0
            cards.wanted.clear()
            await asyncio.sleep(60)
            cards.silent = True
            await asyncio.sleep(120)
            cards.silent = False
            cards.wanted["gpu1"] = 4 * GIB
            await asyncio.sleep(60)
            cards.die()
            await asyncio.sleep(60)
            cards.dead = False
            cards.wanted.clear()
            self.seen["rounds"] += 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_load_is_for_memory_that_is_not_there_and_no_request_is_lost(seed: int) -> None:
    """Other programs, memory that comes back late, a driver that is silent or gone."""

    async def story() -> Soak:
        soak = Soak(seed)
        await soak.run()
        return soak

    soak = run(story())
    assert soak.cards.overcommitted == []
    assert sum(soak.served.values()) == REQUESTS
    assert min(soak.served[model] for model in MODELS) > 50
    assert soak.seen["rounds"] >= 2
    assert soak.seen["foreign"] >= 1
    assert not soak.cards.processes
    for model, uses in MODELS.items():
        learned = soak.footprints.figure(model).bytes
        assert all(size <= learned[card] < size + GIB // 2 for card, size in uses.items()), model
