"""One model's place in the scheduler, and one place in its queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from llmsnap.core.lifecycle import State, Trigger, advance
from llmsnap.core.messages import ModelSpec
from llmsnap.core.pace import Pace
from llmsnap.core.placement import Share
from llmsnap.core.timeline import Timeline
from llmsnap.errors import LlmsnapError

DOWN: Final = frozenset({State.STOPPED, State.FAILED})
"""No process."""
SLUMBER: Final = frozenset({State.ASLEEP, State.PAGING})
"""Off its devices, and nothing but a wake or an end leads out of it."""
COMING: Final = frozenset({State.STARTING, State.WAKING})
LEAVING: Final = frozenset({State.SLEEPING, State.STOPPING})

_ON_DEVICES: Final = frozenset({State.STARTING, State.READY, State.SLEEPING, State.WAKING})
_IN_TIER: Final = frozenset({State.SLEEPING, State.ASLEEP, State.PAGING, State.WAKING})

NOWHERE: Final = ("", 0)


@dataclass(slots=True, eq=False)
class Slot:
    """All that is known of one model; written by `Board` and the rules, read by everybody."""

    spec: ModelSpec
    need: Mapping[str, int] | None
    """Bytes a device, declared or learned; None: not known."""
    estimate: Mapping[str, int] | None
    pace: Pace
    timeline: Timeline = field(default_factory=Timeline)
    state: State = State.STOPPED
    stopped_from: State = State.STOPPED
    """While STOPPING: where it was, which says what it still holds."""
    generation: int = 0
    share: Share | None = None
    """What it holds on its devices; settled when it is loaded."""
    booked: Mapping[str, int] = field(default_factory=dict)
    """The least a device that it held since it was loaded; others may have relied on it."""
    let_be: frozenset[str] = frozenset()
    """Who may stay beside it although its size isn't known: they were there before that counted."""
    tier_held: tuple[str, int] = NOWHERE
    """The tier and the bytes it holds there; settled when it is put to sleep."""
    bound_for: tuple[str, int] = NOWHERE
    """The lower tier that part of it may be in already, and the bytes that it will hold there."""
    servable: bool = True
    """Whether it would fit beside the other pinned models with everybody else gone."""
    serving: dict[int, Ticket] = field(default_factory=dict)
    onlookers: int = 0
    """How many of those it serves are no use of it."""
    waiting: int = 0
    """Tickets in the queue."""
    limited: int = 0
    """Tickets, waiting or served, that count against its `concurrency_limit`."""
    call: Call | None = None
    ready_at: float = -inf
    used_at: float = -inf
    """End of the last request, or ready."""
    gap_s: float = inf
    """From idle to the next arrival, the last time."""
    fails: int = 0
    """Failed starts in a row."""
    ooms: int = 0
    """Times in a row that its memory ran out on the way up."""
    refused_wakes: int = 0
    """Times in a row that it couldn't be woken and slept on."""
    wake_at: float = -inf
    """Until then it isn't tried again."""
    ability_due: bool = False
    """Whether it is about to be known how it can sleep."""
    need_is_news: bool = False
    """Whether its need was learned since it was last loaded."""
    retry_at: float = -inf
    crashes: int = 0
    """Times in a row that it ended by itself soon after it was ready."""
    call_at: float = -inf
    """Until then a pinned model that crashed isn't loaded by itself."""
    error: LlmsnapError | None = None
    """Why the last generation ended, when it ended by itself."""
    exit_code: int | None = None
    """That of its process, when it gave one."""
    unload_at: float | None = None
    """An administrator wants it gone by then; None: nobody does."""
    dismissed: bool = False
    """Unloaded by an administrator: if pinned, it isn't loaded again before it is asked for."""
    asked_to_sleep: bool = False
    kept_s: float | None = None
    """How long a client wants it kept after its last use; None: it goes by its settings."""
    is_deaf: bool = False
    """Whether its process takes no connections any more, and is on its way out for that."""
    is_outdated: bool = False
    """Whether its process isn't the one that the configuration has for it now."""
    is_removed: bool = False
    """Whether the configuration doesn't have it any more; those who waited are still served."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.spec.name

    @property
    def is_unused(self) -> bool:
        """Whether it serves nobody whose request is a use of it."""
        return len(self.serving) == self.onlookers

    @property
    def is_gone(self) -> bool:
        """Whether the configuration doesn't have it any more, and nothing of it is left."""
        return self.is_removed and self.state in DOWN and not self.waiting

    @property
    def lack(self) -> LlmsnapError | None:
        """Why it can't be started; None: it can, or is up."""
        return self.spec.lack if self.state in DOWN else None

    @property
    def is_paused(self) -> bool:
        """Whether it was put to sleep in the middle of its answers."""
        return bool(self.serving) and self.state is not State.READY

    @property
    def is_on_devices(self) -> bool:
        """Whether its bytes are on its devices, or may be."""
        return self._still_or_just_left(_ON_DEVICES)

    @property
    def is_in_tier(self) -> bool:
        """Whether its bytes are in its tier, or may be."""
        return self._still_or_just_left(_IN_TIER)

    @property
    def round_trip_s(self) -> float:
        """Seconds for a way out and in again, as measured."""
        return self.pace.round_trip_s(sleeps=self.spec.can_sleep)

    @property
    def back_s(self) -> float:
        """Seconds to be ready again, as measured, once it isn't, or as it is now."""
        sleeps = self.spec.can_sleep if self.state is State.READY else self.state in _IN_TIER
        return self.pace.back_s(sleeps=sleeps)

    @property
    def min_awake_s(self) -> float:
        """Seconds awake before it may be made to leave a client who comes back (R7, R8)."""
        own = self.spec.min_awake_s
        return 2 * self.round_trip_s if own is None else own

    @property
    def slice_s(self) -> float:
        """Seconds awake before it may be paused in the middle of its answers (R10)."""
        own = self.spec.time_slice_s
        return max(10.0, 3 * self.round_trip_s) if own is None else own

    def move(self, trigger: Trigger) -> None:
        """Change the state as the table says; raise InvalidTransition where it has no such move."""
        self.state = advance(self.state, trigger)

    def hold(self, share: Share) -> None:
        """Note that it holds `share` now; what was booked of a device only shrinks."""
        self.share = share
        self.booked = {d: min(size, self.booked.get(d, 0)) for d, size in share.bytes.items()}

    def _still_or_just_left(self, states: frozenset[State]) -> bool:
        where = self.stopped_from if self.state is State.STOPPING else self.state
        return where in states


@dataclass(slots=True, eq=False)
class Entry:
    """One place in the queue. The queue is in order of `since`, then `seq` (R1)."""

    since: float
    seq: int
    slot: Slot


@dataclass(slots=True, eq=False)
class Ticket(Entry):
    """A client's place, in the queue and afterwards with the model."""

    number: int
    limited: bool
    is_helper: bool
    is_use: bool
    arrived: float


@dataclass(slots=True, eq=False)
class Call(Entry):
    """A model's own place: it was paused, or it is pinned and not up."""

    @property
    def is_pause(self) -> bool:
        """Whether clients wait in the middle of their answers."""
        return bool(self.slot.serving)
