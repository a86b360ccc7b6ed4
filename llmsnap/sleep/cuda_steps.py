"""The four calls of a sleep and a wake, each with what is done when it fails or has no answer.

A call without an answer may have been carried out all the same: the driver goes on when its caller
dies. So the state is asked then, and decides.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from llmsnap.errors import SleepFailed, SleepRefused, WakeFailed
from llmsnap.sleep.cuda_api import ProcessState, Result, state_name
from llmsnap.sleep.cuda_client import CallLost, CudaClient
from llmsnap.sleep.cuda_wire import Reply

logger = logging.getLogger(__name__)

_UNLOCK_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take, and how much memory must be left over."""

    lock_timeout_s: float = 2.0
    """How long a lock waits for work in flight."""
    call_s: float = 5.0
    """Deadline of the calls that move nothing, the lock's own wait aside."""
    checkpoint_s: float = 10.0
    restore_s: float = 5.0
    lowest_rate: float = 0.5e9
    """Bytes a second; checkpoint and restore get the time that this takes on top."""
    settle_s: float = 5.0
    """How long memory may take to show up as free."""
    poll_s: float = 0.05
    gpu_margin_bytes: int = 512 * 1024**2
    gpu_margin_share: float = 0.03
    """Of the footprint; the larger one of both margins counts."""
    host_margin_bytes: int = 1024**3
    host_margin_share: float = 0.05

    def on_gpu(self, footprint: int) -> int:
        """Return what must be free on a GPU before `footprint` bytes are restored to it."""
        return footprint + max(self.gpu_margin_bytes, int(footprint * self.gpu_margin_share))

    def in_ram(self, footprint: int) -> int:
        """Return how much RAM must be left before `footprint` bytes are copied there."""
        return footprint + max(self.host_margin_bytes, int(footprint * self.host_margin_share))


class Steps:
    """Lock, checkpoint, restore and unlock of one process at a time."""

    def __init__(self, client: CudaClient, limits: Limits) -> None:
        self._client = client
        self._limits = limits

    async def state(self, pid: int, deadline_s: float) -> int | None:
        """Return the state of `pid`, of ProcessState; None when the driver doesn't tell."""
        try:
            reply = await self._client.state(pid, deadline_s=deadline_s)
        except CallLost as lost:
            logger.warning("state of pid %d: %s", pid, lost)
            return None
        return reply.state

    async def lock(self, pid: int) -> None:
        """Lock `pid`; raise SleepRefused when it runs on as before, SleepFailed when unsure."""
        limits = self._limits
        reply: Reply | None = None
        try:
            reply = await self._client.lock(
                pid,
                timeout_s=limits.lock_timeout_s,
                deadline_s=limits.lock_timeout_s + limits.call_s,
            )
            why = f"the driver can't lock it ({reply.name})"
        except CallLost as lost:
            why = str(lost)
        if reply is not None and reply.result == Result.SUCCESS:
            return
        if reply is not None and reply.result == Result.NOT_READY:
            raise SleepRefused(f"its GPU work isn't done after {limits.lock_timeout_s:g} s")
        match await self.state(pid, limits.call_s):
            case ProcessState.LOCKED:
                return
            case ProcessState.RUNNING:
                raise SleepRefused(why)
            case state:
                raise SleepFailed(f"{why}, and now it is {_words(state)}")

    async def checkpoint(self, pid: int, footprint: int) -> float | None:
        """Checkpoint the locked `pid`; return the seconds when they were measured."""
        deadline_s = self._limits.checkpoint_s + footprint / self._limits.lowest_rate
        for _ in range(2):
            try:
                reply = await self._client.checkpoint(pid, deadline_s=deadline_s)
            except CallLost as lost:
                why = str(lost)
            else:
                if reply.result == Result.SUCCESS:
                    return reply.seconds
                raise SleepFailed(f"the driver can't checkpoint it ({reply.name})")
            state = await self.state(pid, deadline_s)
            if state == ProcessState.CHECKPOINTED:
                return None
            if state != ProcessState.LOCKED:
                raise SleepFailed(f"{why}, and now it is {_words(state)}")
            logger.warning("checkpoint of pid %d: %s; it is tried once more", pid, why)
        raise SleepFailed(why)

    async def restore(self, pid: int, footprint: int) -> float | None:
        """Restore the checkpointed `pid`; return the seconds when they were measured."""
        deadline_s = self._limits.restore_s + footprint / self._limits.lowest_rate
        try:
            reply = await self._client.restore(pid, deadline_s=deadline_s)
        except CallLost as lost:
            state = await self.state(pid, deadline_s)
            if state in (ProcessState.LOCKED, ProcessState.RUNNING):
                return None
            raise WakeFailed(f"{lost}, and now it is {_words(state)}") from None
        if reply.result != Result.SUCCESS:
            raise WakeFailed(f"the driver can't restore it ({reply.name})")
        return reply.seconds

    async def unlock(self, pid: int) -> None:
        """Unlock the restored `pid`, in up to three tries."""
        why = ""
        for _ in range(_UNLOCK_TRIES):
            try:
                reply = await self._client.unlock(pid, deadline_s=self._limits.call_s)
            except CallLost as lost:
                why = str(lost)
            else:
                if reply.result == Result.SUCCESS:
                    return
                why = f"the driver can't unlock it ({reply.name})"
            if await self.state(pid, self._limits.call_s) == ProcessState.RUNNING:
                return
            logger.warning("unlock of pid %d: %s", pid, why)
        raise WakeFailed(why)


def _words(state: int | None) -> str:
    return "in a state that the driver doesn't tell" if state is None else state_name(state)
