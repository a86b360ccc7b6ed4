"""Sleep of servers on the CPU: stop all processes, page them out to swap; prefetch, let them go on.

The KV cache is there again after a wake, and so is every request in flight.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from llmsnap.errors import SleepFailed, SleepRefused, WakeFailed
from llmsnap.sleep import pageable, pager, proctree
from llmsnap.sleep.driver import Memo, Moved, Supported, Target, Unsupported, Verdict
from llmsnap.sleep.offload import Deadline, Pace, in_thread, look, words
from llmsnap.sleep.pageable import Listens, Machine
from llmsnap.sleep.pager import Memory, NotOut
from llmsnap.sleep.processes import Seen

_RESUME_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Tree:
    """The processes of one generation of a model, asleep or woken."""

    generation: int
    processes: tuple[Seen, ...]
    memories: tuple[Memory, ...]
    """What was in memory when they were put to sleep; empty while they are awake."""
    swapped: int
    """How much of that went to swap."""
    woken: bool
    """Whether they were awake before after a sleep, and so had in memory only what they used."""

    @property
    def bytes(self) -> int:
        """How much is to be brought back."""
        return sum(memory.bytes for memory in self.memories)


class PageOutDriver:
    """Moves a server's memory to swap and back; see `SleepDriver`.

    After a cancelled `sleep` or `wake` nothing is known of the processes: end them.
    """

    name: Final = "pageout"
    keeps_state: Final = True
    kill_only: Final = True
    """A stopped process takes no other signal."""
    below: Final = None

    def __init__(self, machine: Machine, listens: Listens, *, pace: Pace | None = None) -> None:
        self._machine = machine
        self._listens = listens
        self._pace = pace or Pace()
        self._trees: dict[str, _Tree] = {}
        """By model."""
        self._turn = asyncio.Lock()
        self._promised: dict[str, int] = {}
        """Swap that sleeps under way will take, by model."""

    async def probe(self, target: Target) -> Verdict:
        """Return whether the processes can be paged out now; never raises, never harms them."""
        if sys.platform != "linux":
            return Unsupported(f"processes are paged out on Linux only, not on {sys.platform}")
        try:
            pids = await look(lambda: proctree.pids(target.pid))
            if fault := await pageable.listener_fault(target, pids, self._listens):
                return Unsupported(fault)
            return await look(lambda: self._verdict(pids))
        except PermissionError:
            return Unsupported("its processes belong to another user; let `cmd` keep to ours")
        except (OSError, ValueError) as error:
            return Unsupported(f"its processes can't be looked at: {words(error)}")

    def wake_s(self, target: Target) -> float | None:
        """Predict nothing: what its last wake took says more than could be known here."""
        return None

    async def sleep(self, target: Target) -> Moved:
        """Stop the processes and page them out; raise SleepRefused when they are awake as before.

        Raises SleepFailed when they may be neither asleep nor well; end them then.
        """
        if self._sleeps(target):
            return Moved(seconds=0.0)
        try:
            size = await self._promise_swap(target)
            tree, moved = await in_thread(
                lambda deadline: self._put_to_sleep(target, deadline),
                limit_s=self._pace.limit_s(size),
                name=f"sleep {target.model}",
            )
        except (OSError, ValueError) as error:
            raise SleepFailed(f"it can't be paged out: {words(error)}") from error
        finally:
            self._promised.pop(target.model, None)
        self._trees[target.model] = tree
        return moved

    async def wake(self, target: Target) -> Moved:
        """Bring back what was in memory, then let the processes go on; raise WakeFailed."""
        tree = self._known(target)
        if tree is None or not tree.memories:
            raise WakeFailed("nothing is known of its sleep")
        try:
            moved = await in_thread(
                lambda deadline: self._wake_up(tree, deadline),
                limit_s=self._pace.limit_s(tree.bytes),
                name=f"wake {target.model}",
            )
        except (OSError, ValueError) as error:
            raise WakeFailed(f"it can't be brought back from swap: {words(error)}") from error
        self._trees[target.model] = replace(tree, memories=(), swapped=0, woken=True)
        return moved

    def memo(self, target: Target) -> Memo:
        """Return nothing: what is in swap, the kernel knows."""
        return {}

    async def take_over(self, target: Target, memo: Memo) -> Verdict:
        """Take charge of processes that are stopped, with whatever of them is in swap."""
        try:
            tree = await look(lambda: _stopped_tree(target))
        except (OSError, ValueError) as error:
            return Unsupported(f"its processes can't be looked at: {words(error)}")
        if tree is None:
            return Unsupported("not all of its processes are stopped")
        self._trees[target.model] = tree
        return Supported(tier="swap", tier_bytes=tree.bytes, can_pause=True)

    async def aclose(self) -> None:
        """Nothing is held open; what sleeps goes on sleeping."""

    def _known(self, target: Target) -> _Tree | None:
        tree = self._trees.get(target.model)
        return tree if tree is not None and tree.generation == target.generation else None

    def _sleeps(self, target: Target) -> bool:
        tree = self._known(target)
        return tree is not None and bool(tree.memories)

    async def _promise_swap(self, target: Target) -> int:
        """Set the swap aside that `target` will take; return how much memory it holds."""
        async with self._turn:  # or two would count on the same swap
            pids = await look(lambda: proctree.pids(target.pid))
            verdict, held = await look(lambda: (self._verdict(pids), self._machine.usage(pids)))
            if isinstance(verdict, Unsupported):
                raise SleepRefused(verdict.reason)
            self._promised[target.model] = pageable.only_for_swap(held)
        return held.rss_bytes

    def _verdict(self, pids: Sequence[int]) -> Verdict:
        if fault := pageable.gpu_fault(pids):
            return Unsupported(fault)
        promised = sum(self._promised.values())
        return pager.verdict(self._machine, pids, promised=promised, can_pause=True)

    def _put_to_sleep(self, target: Target, deadline: Deadline) -> tuple[_Tree, Moved]:
        began = time.monotonic()
        processes = proctree.stop(target.pid, deadline)
        if not processes:
            raise SleepFailed("it has ended")
        pids = [one.pid for one in processes]
        try:
            before, memories = self._machine.usage(pids), pager.in_memory(pids)
            after = pager.page_out(self._machine, pids, deadline)
        except (NotOut, TimeoutError) as error:
            proctree.go_on(processes, Deadline(_RESUME_S))
            raise SleepRefused(words(error)) from error
        if not all(map(proctree.lives, processes)):
            raise SleepFailed("a process of it has ended meanwhile")
        known = self._known(target)
        woken = known is not None and known.woken
        swapped = pageable.only_for_swap(before)
        tree = _Tree(target.generation, tuple(processes), tuple(memories), swapped, woken)
        moved = {
            "host": after.rss_bytes - before.rss_bytes,
            "swap": after.swap_bytes - before.swap_bytes,
        }
        return tree, Moved(seconds=time.monotonic() - began, bytes=moved)

    def _wake_up(self, tree: _Tree, deadline: Deadline) -> Moved:
        began = time.monotonic()
        for one in tree.processes:
            if not proctree.lives(one):
                raise WakeFailed(f"pid {one.pid} of it has ended while it was asleep")
        # A first wake maps nothing, so that the next sleep sees which pages were used in between:
        # much of a KV cache, and of a file, may never be.
        pager.fetch(tree.memories, deadline, mapped=tree.woken)
        proctree.go_on(tree.processes, deadline)
        moved = {"host": tree.bytes, "swap": -tree.swapped}
        return Moved(seconds=time.monotonic() - began, bytes=moved)


def _stopped_tree(target: Target) -> _Tree | None:
    """Return the processes of `target` as they are; None unless each of them is stopped."""
    processes = proctree.living(target.pid)
    if not processes or not all(one.stopped for one in processes):
        return None
    memories = tuple(pager.in_swap(one.pid for one in processes))
    swapped = sum(memory.bytes for memory in memories)
    return _Tree(target.generation, tuple(processes), memories, swapped, woken=False)
