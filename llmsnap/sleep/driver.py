"""What every way out of memory short of a stop has in common.

A driver moves one model's process out of its device's memory and back. All its calls are bounded
in time. Whatever goes wrong in `sleep` or `wake` is raised, and the process is then ended by the
caller: there is no half-asleep state that anything may be served from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One generation of one model's server, as drivers see it."""

    model: str
    generation: int
    pid: int
    """The child that the proxy started; the server may be below it."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    """The whole environment of the process."""
    host: str
    port: int
    base_url: str
    """`http://host:port/base`, without a slash at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supported:
    """The driver can put this process to sleep."""

    tier: str
    """Where the bytes go: `ram` or `swap`."""
    tier_bytes: int
    """How many they will be there, as far as is known now."""
    can_pause: bool = False
    """Whether requests in flight survive it."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The driver can't, and why, in words for the operator."""

    reason: str


Verdict = Supported | Unsupported


Memo = Mapping[str, Any]
"""What JSON can hold of how a process sleeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one sleep or wake moved."""

    seconds: float
    bytes: Mapping[str, int] = field(default_factory=dict)
    """By device or tier: `gpu0`, `host`, `ram`, `swap`; what left it is negative."""


class Below(Protocol):
    """The step below a driver: what sleeps by it moves on to another tier, when its own is full."""

    async def probe(self, target: Target) -> Verdict:
        """Return whether this process, which sleeps, can be moved on; never raises or harms it."""
        ...

    def trip_s(self, size: int) -> float | None:
        """Predict the seconds that `size` bytes take to go there and come back; None: not known."""
        ...

    async def page_out(self, target: Target) -> Moved:
        """Move it on; raise SleepRefused when it sleeps on as before. The driver's wake undoes it.

        It may be cancelled at any time: a wake copes with what has moved by then.
        """
        ...


class SleepDriver(Protocol):
    """A way out of memory short of a stop."""

    @property
    def name(self) -> str:
        """`cuda`, `pageout` or `endpoints`."""
        ...

    @property
    def keeps_state(self) -> bool:
        """Whether the KV cache is there again after a wake."""
        ...

    @property
    def kill_only(self) -> bool:
        """Whether SIGKILL is all that a process which sleeps by it can obey."""
        ...

    @property
    def below(self) -> Below | None:
        """What can be done with a process that sleeps by it and is to leave its tier."""
        ...

    async def probe(self, target: Target) -> Verdict:
        """Return whether this process can be put to sleep now; never raises, never harms it."""
        ...

    def wake_s(self, target: Target) -> float | None:
        """Predict the seconds that a wake of this process takes; None: not known."""
        ...

    async def sleep(self, target: Target) -> Moved:
        """Put the process to sleep; raise SleepFailed when it isn't, or isn't surely, asleep."""
        ...

    async def wake(self, target: Target) -> Moved:
        """Wake the process, so that it answers at once; raise WakeFailed when it doesn't.

        Raises WakeRefused when it sleeps on as before, and may be woken later.
        """
        ...

    def memo(self, target: Target) -> Memo:
        """Return what a driver must be told to wake this process, which sleeps by this one."""
        ...

    async def take_over(self, target: Target, memo: Memo) -> Verdict:
        """Take charge of a process that sleeps by an earlier proxy's driver, which left `memo`.

        Never raises or wakes it; Unsupported: it isn't, or isn't surely, asleep in that way.
        """
        ...

    async def aclose(self) -> None:
        """Let go of helpers and connections; sleeping processes stay as they are."""
        ...
