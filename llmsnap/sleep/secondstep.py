"""The step below a checkpoint: what it left in RAM goes to swap, and comes back before a restore.

The processes aren't stopped: the driver's calls on a stopped one would hang, and one that is
checkpointed does nothing anyway.
"""

from __future__ import annotations

import time

from llmsnap.errors import SleepRefused, WakeFailed
from llmsnap.sleep import pageable, pager, proctree
from llmsnap.sleep.driver import Moved, Target, Unsupported, Verdict
from llmsnap.sleep.offload import Deadline, Pace, in_thread, look, words
from llmsnap.sleep.pageable import Listens, Machine
from llmsnap.sleep.pager import NotOut


class SecondStep:
    """Pages checkpointed processes out to swap, and brings them back."""

    def __init__(self, machine: Machine, listens: Listens, *, pace: Pace | None = None) -> None:
        self._machine = machine
        self._listens = listens
        self._pace = pace or Pace()

    async def probe(self, target: Target) -> Verdict:
        """Return whether the processes can be paged out now; never raises, never harms them."""
        try:
            pids = await look(lambda: proctree.pids(target.pid))
            if fault := await pageable.listener_fault(target, pids, self._listens):
                return Unsupported(fault)
            return await look(lambda: pager.verdict(self._machine, pids))
        except (OSError, ValueError) as error:
            return Unsupported(f"its processes can't be looked at: {words(error)}")

    async def page_out(self, target: Target) -> Moved:
        """Page the processes out; raise SleepRefused when too much of them stays in RAM.

        They are as well as before then: nothing of what they hold is lost either way.
        """
        try:
            held = await look(lambda: self._machine.usage(proctree.pids(target.pid)))
            return await in_thread(
                lambda deadline: self._out(target, deadline),
                limit_s=self._pace.limit_s(held.rss_bytes),
                name=f"page out {target.model}",
            )
        except (NotOut, OSError, ValueError) as error:
            raise SleepRefused(f"it can't be paged out: {words(error)}") from error

    async def bring_back(self, target: Target) -> Moved:
        """Bring all of it back from swap; raise WakeFailed when that fails."""
        try:
            held = await look(lambda: self._machine.usage(proctree.pids(target.pid)))
            return await in_thread(
                lambda deadline: self._back(target, deadline),
                limit_s=self._pace.limit_s(held.swap_bytes),
                name=f"bring back {target.model}",
            )
        except (OSError, ValueError) as error:
            raise WakeFailed(f"it can't be brought back from swap: {words(error)}") from error

    def _out(self, target: Target, deadline: Deadline) -> Moved:
        began, pids = time.monotonic(), proctree.pids(target.pid)
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
        memories = pager.in_swap(proctree.pids(target.pid))
        pager.fetch(memories, deadline, mapped=True)
        size = sum(memory.bytes for memory in memories)
        return Moved(seconds=time.monotonic() - began, bytes={"ram": size, "swap": -size})
