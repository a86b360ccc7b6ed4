"""The step below a checkpoint: what it left in RAM goes to swap, and comes back before a restore.

The processes aren't stopped: the driver's calls on a stopped one would hang, and one that is
checkpointed does nothing anyway.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from llmsnap.config.quantities import size_text
from llmsnap.errors import SleepRefused, WakeFailed, WakeRefused
from llmsnap.sleep import pageable, pager, proctree
from llmsnap.sleep.driver import Moved, Target, Unsupported, Verdict
from llmsnap.sleep.offload import Deadline, Pace, in_thread, look, words
from llmsnap.sleep.pageable import Held, Listens, Machine
from llmsnap.sleep.pager import NotOut
from llmsnap.sleep.rates import Rates
from llmsnap.sleep.readings import HostRoom

_LEAST_BYTES: Final = 16 << 20
"""Less than this in swap isn't worth a thread: it comes as it is needed."""


class MachineRoom(Machine, HostRoom, Protocol):
    """Anything that knows both swap and RAM."""


class SecondStep:
    """Pages checkpointed processes out to swap, and brings them back; see `Below`."""

    def __init__(self, machine: MachineRoom, listens: Listens, *, pace: Pace | None = None) -> None:
        self._machine = machine
        self._listens = listens
        self._pace = pace or Pace()
        self._rates = Rates()
        self._turns: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        """By pid: who was called off may still be in its last call into the kernel."""

    async def probe(self, target: Target) -> Verdict:
        """Return whether the processes can be paged out now; never raises, never harms them."""
        try:
            pids = await look(lambda: proctree.pids(target.pid))
            if fault := await pageable.listener_fault(target, pids, self._listens):
                return Unsupported(fault)
            return await look(lambda: pager.verdict(self._machine, pids))
        except (OSError, ValueError) as error:
            return Unsupported(f"its processes can't be looked at: {words(error)}")

    def trip_s(self, size: int) -> float | None:
        """Predict how long `size` bytes take out and back; None before both ways were seen."""
        out_s, back_s = (rate.seconds_for(size) for rate in (self._rates.sleep, self._rates.wake))
        return None if out_s is None or back_s is None else out_s + back_s

    async def page_out(self, target: Target) -> Moved:
        """Page the processes out; raise SleepRefused when too much of them stays in RAM.

        They are as well as before then: nothing of what they hold is lost either way.
        """
        try:
            held = await look(lambda: self._machine.usage(proctree.pids(target.pid)))
            moved = await in_thread(
                lambda deadline: self._out(target, deadline),
                limit_s=self._pace.limit_s(held.rss_bytes),
                name=f"page out {target.model}",
            )
        except (NotOut, OSError, ValueError) as error:
            raise SleepRefused(f"it can't be paged out: {words(error)}") from error
        self._rates.sleep.learn(moved.bytes["swap"], moved.seconds)
        return moved

    async def is_out(self, target: Target) -> bool:
        """Whether any of the processes' memory worth mentioning is in swap, whoever sent it."""
        try:
            held = await in_thread(
                lambda deadline: self._held(target, deadline),
                limit_s=self._pace.base_s,
                name=f"look at {target.model}",
            )
        except TimeoutError:
            return True  # who was called off is still at it
        except (OSError, ValueError):
            return False
        return held.swap_bytes >= _LEAST_BYTES

    async def bring_back(self, target: Target) -> Moved:
        """Bring all of it back from swap; raise WakeRefused when RAM is short, or WakeFailed."""
        try:
            held = await look(lambda: self._machine.usage(proctree.pids(target.pid)))
            room = await self._machine.room_for(target.pid)
            if room < held.swap_bytes:
                raise WakeRefused(
                    f"RAM is short: it may take {size_text(room)} more, and "
                    f"{size_text(held.swap_bytes)} of it are in swap"
                )
            moved = await in_thread(
                lambda deadline: self._back(target, deadline),
                limit_s=self._pace.limit_s(held.swap_bytes),
                name=f"bring back {target.model}",
            )
        except (OSError, ValueError) as error:
            raise WakeFailed(f"it can't be brought back from swap: {words(error)}") from error
        self._rates.wake.learn(moved.bytes["ram"], moved.seconds)
        return moved

    def _held(self, target: Target, deadline: Deadline) -> Held:
        with self._turn(target, deadline):
            return self._machine.usage(proctree.pids(target.pid))

    def _out(self, target: Target, deadline: Deadline) -> Moved:
        began, pids = time.monotonic(), proctree.pids(target.pid)
        with self._turn(target, deadline):
            before = self._machine.usage(pids)
            after = pager.page_out(self._machine, pids, deadline)
        return Moved(
            seconds=time.monotonic() - began,
            bytes={
                "ram": after.rss_bytes - before.rss_bytes,
                "swap": after.swap_bytes - before.swap_bytes,
            },
        )

    def _back(self, target: Target, deadline: Deadline) -> Moved:
        began = time.monotonic()
        with self._turn(target, deadline):
            memories = pager.in_swap(proctree.pids(target.pid))
            pager.fetch(memories, deadline, mapped=True)
        size = sum(memory.bytes for memory in memories)
        return Moved(seconds=time.monotonic() - began, bytes={"ram": size, "swap": -size})

    @contextmanager
    def _turn(self, target: Target, deadline: Deadline) -> Iterator[None]:
        """Wait until no other thread moves memory of `target`."""
        turn = self._turns[target.pid]
        deadline.wait(lambda: turn.acquire(blocking=False))
        try:
            yield
        finally:
            turn.release()
