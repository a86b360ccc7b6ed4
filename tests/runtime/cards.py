"""Simulated cards and servers on virtual time, for soaks of everything that keeps the books.

A load takes all its memory at once, and other programs take theirs just before the cards are looked
at. So it can't show what becomes of a load that meets a program between two looks: in that case
memory runs out, and the load is tried again.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import AbilityChanged, Event, ModelChanged
from llmsnap.errors import LlmsnapError
from llmsnap.memory.device import Reading
from llmsnap.memory.kernel import Usage
from llmsnap.memory.machine import Look, Tree
from llmsnap.runtime.rest import RestView
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.upstream import Upstream

GIB = 1024**3
MIB = 1024**2
TOTAL = 24 * GIB
RESERVED = 400 * MIB
"""What the driver keeps for itself."""

_ANOTHER = 1
"""The process of the other program."""
_pids = count(1000)


@dataclass
class Cards:
    """Two cards, who holds what of them, and what their driver tells."""

    rng: random.Random
    clock: Callable[[], float]
    processes: dict[int, Mapping[str, int]] = field(default_factory=dict)
    late: list[tuple[float, str, int]] = field(default_factory=list)
    """Until when so many bytes of a card are still used, though nobody has them."""
    foreign: Counter[str] = field(default_factory=Counter)
    wanted: Counter[str] = field(default_factory=Counter)
    """What other programs would like; they take it when it is free."""
    silent: bool = False
    """The driver doesn't tell bytes by process."""
    dead: bool = False
    """There is no driver."""
    overcommitted: list[str] = field(default_factory=list)
    """Loads for memory that wasn't there: no real card would have forgiven them."""

    def used(self, card: str) -> int:
        """Bytes of a card that an allocation can't have."""
        self.late = [one for one in self.late if one[0] > self.clock()]
        held = sum(uses.get(card, 0) for uses in self.processes.values())
        gone = sum(size for _, name, size in self.late if name == card)
        return RESERVED + held + gone + self.foreign[card]

    def take(self, pid: int, what: str, uses: Mapping[str, int]) -> None:
        """Give a process memory."""
        for card, size in uses.items():
            if self.used(card) + size > TOTAL:
                free = (TOTAL - self.used(card)) / GIB
                self.overcommitted.append(
                    f"{what}: {size / GIB:.1f} GiB of {card}, {free:.1f} free"
                )
        self.processes[pid] = uses

    def give_back(self, pid: int) -> None:
        """Take the memory of a process; it is free up to three seconds later."""
        for card, size in self.processes.pop(pid, {}).items():
            if not self.dead:
                self.late.append((self.clock() + self.rng.uniform(0, 3), card, size))

    def die(self) -> None:
        """Lose the driver, and with it all traces of memory that was late."""
        self.dead = True
        self.late.clear()

    async def look(self, roots: Mapping[str, int]) -> Look:
        """Return what there is to see; it takes a moment."""
        await asyncio.sleep(0.005)
        for card in ("gpu0", "gpu1"):
            change = self.wanted[card] - self.foreign[card]
            if not self.dead and self.used(card) + change <= TOTAL:
                self.foreign[card] += change
        trees = {
            model: Tree((pid,), Usage(rss_bytes=MIB, anonymous_bytes=MIB))
            for model, pid in roots.items()
        }
        if self.dead:
            return Look(trees=trees, faults=("there is no driver",))
        return Look(devices={card: self.reading(card) for card in ("gpu0", "gpu1")}, trees=trees)

    def reading(self, card: str) -> Reading:
        """Return how full a card is."""
        listed = {pid: uses[card] for pid, uses in self.processes.items() if card in uses}
        listed |= {_ANOTHER: self.foreign[card]} if self.foreign[card] else {}
        return Reading(
            device=card,
            total_bytes=TOTAL,
            free_bytes=TOTAL - self.used(card),
            taken_at=self.clock(),
            processes=None if self.silent else listed,
        )


class Server:
    """A runner whose process is a few numbers."""

    def __init__(
        self,
        model: str,
        uses: Mapping[str, int],
        cards: Cards,
        background: Background,
        report: Callable[[Event], None],
    ) -> None:
        self.pid: int | None = None
        self.rest = RestView()
        self.unload_timeout_s = self.end_timeout_s = 1.0
        self._model = model
        self._uses = uses
        self._cards = cards
        self._background = background
        self._report = report
        self._generation = 0
        self._move: asyncio.Task[None] | None = None
        self._size = sum(uses.values()) / GIB

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self.pid is not None

    @property
    def outlives_us(self) -> bool:
        """No: this is the whole world."""
        return False

    def leave(self) -> None:
        """Never needed."""
        raise AssertionError

    @property
    def upstream(self) -> Upstream:
        """Where nobody listens."""
        return Upstream(self._model, self._generation, "127.0.0.1", 1, "", False, self.pid)

    def start(self, generation: int) -> None:
        """Load: a GiB takes a fifth of a second."""
        self._generation, self.pid = generation, next(_pids)
        self._cards.take(self.pid, f"start {self._model}", self._uses)
        self._spawn(1.0 + self._size / 5, self._is_ready)

    def wake(self) -> None:
        """Come back, ten times as fast."""
        assert self.pid is not None
        self._cards.take(self.pid, f"wake {self._model}", self._uses)
        self._spawn(self._size / 50, lambda: self._tell(Trigger.WOKEN))

    def sleep(self, *, anyway: bool) -> None:
        """Leave the cards."""
        self._spawn(self._size / 25, lambda: self._leave(Trigger.SLEPT))

    def stop(self, *, now: bool = False) -> None:
        """End."""
        if self._move is not None:
            self._move.cancel()
        self._spawn(0.3, lambda: self._leave(Trigger.EXITED))

    def page_out(self) -> None:
        """There is RAM enough."""
        raise AssertionError

    def fail(self, error: LlmsnapError) -> None:
        """Nobody stalls."""
        raise AssertionError(error)

    def _is_ready(self) -> None:
        self._tell(Trigger.READY)
        tier_bytes = sum(self._uses.values())
        self._report(AbilityChanged(self._model, True, False, "ram", tier_bytes))

    def _leave(self, trigger: Trigger) -> None:
        assert self.pid is not None
        self._cards.give_back(self.pid)
        if trigger is Trigger.EXITED:
            self.pid = None
        self._tell(trigger)

    def _tell(self, trigger: Trigger) -> None:
        self._report(ModelChanged(self._model, self._generation, trigger))

    def _spawn(self, seconds: float, then: Callable[[], None]) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            then()

        self._move = self._background.spawn(later(), name=self._model)
