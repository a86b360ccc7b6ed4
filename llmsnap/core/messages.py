"""What the scheduler is told (events), what it orders (actions), and the plain values in both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from msgspec import Struct
from msgspec import field as struct_field

from llmsnap.core.cause import ASKED, Cause
from llmsnap.core.constraints import Constraints
from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.schedule import Schedule
from llmsnap.errors import LlmsnapError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What the scheduler must know of one model. Bytes are bytes, times are seconds."""

    name: str
    devices: tuple[str, ...] = ()
    """Devices that it occupies while awake. Empty: memory is no concern of this model."""
    need: Mapping[str, int] | None = None
    """Bytes a device while awake, declared or learned. None: unknown, so it loads alone."""
    estimate: Mapping[str, int] | None = None
    """What its file says it will need, used when `need` is None; never a reason to refuse."""
    certain: Mapping[str, int] = field(default_factory=dict)
    """The part of `estimate` that is sure (the weights a device)."""
    tier: str = "ram"
    """Where its bytes go while asleep: a key of the scheduler's `tiers`."""
    tier_bytes: int = 0
    lower_tier: str = ""
    """Where it can be paged out to from `tier` while it sleeps; empty: nowhere."""
    lower_bytes: int = 0
    can_sleep: bool = False
    can_pause: bool = False
    """Whether it may be put to sleep in the middle of its answers."""
    ability_follows: bool = False
    """Whether an `AbilityChanged` comes soon after each time that it has started."""
    pinned: bool = False
    is_helper: bool = False
    """Its requests put nobody out who is in use (R7)."""
    is_default: bool = False
    """It comes back by itself as soon as there is room (R11)."""
    head_start_s: float = 0.0
    """By how much its requests count as older than they are (R1); negative: as younger."""
    lack: LlmsnapError | None = None
    """Why a start is bound to fail, as far as is known."""
    concurrency_limit: int = 0
    """Most requests waiting and served at once; 0: no limit."""
    sleep_after_s: float = inf
    ttl_s: float = inf
    min_awake_s: float | None = None
    """Overrides twice the measured round trip (R7, R8)."""
    time_slice_s: float | None = None
    """Overrides the slice that is derived from the measured round trip (R10)."""
    round_trip_s: float = 2.0
    """First guess of sleep + wake (or stop + start), until they have been measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Seconds that one ticket spent before it was admitted; they follow each other and add up."""

    queue_s: float = 0.0
    drain_s: float = 0.0
    evict_s: float = 0.0
    wake_s: float = 0.0
    start_s: float = 0.0
    restore_s: float = 0.0
    """From the admission until its saved conversation was back in a slot."""

    @property
    def total_s(self) -> float:
        """Arrival to admission, and what had to be brought back then."""
        waited_s = self.queue_s + self.drain_s + self.evict_s + self.wake_s + self.start_s
        return waited_s + self.restore_s


NO_WAIT = Phases()


# ---- events ------------------------------------------------------------------------------------

# Each request makes two of these and an `Admit`: a frozen dataclass takes five times as long.


class RequestArrived(Struct, frozen=True):
    """A client wants `model`; `ticket` is its number.

    Not `limited`: it doesn't count against `concurrencyLimit`. `is_helper`: None: as the model is.
    Not `is_use`: it is let in at once or refused, and the model is no less idle for it.
    """

    ticket: int
    model: str
    limited: bool = True
    is_helper: bool | None = None
    is_use: bool = True


class RequestFinished(Struct, frozen=True):
    """The client with `ticket` was served, failed or went away. Unknown tickets are ignored."""

    ticket: int


class ModelChanged(Struct, frozen=True):
    """The shell reports READY, SLEPT, PAGED, WOKEN or EXITED of one generation of `model`.

    WOKEN also means that it couldn't be put to sleep, SLEPT that it couldn't be woken or paged out:
    it is as before. SLEPT and EXITED come only once the memory is shown free, or after the settle
    time. `oom`: it ended because memory ran out. `exit_code`: None after an order or a signal.
    """

    model: str
    generation: int
    trigger: Trigger
    error: LlmsnapError | None = None
    oom: bool = False
    exit_code: int | None = None


class ModelGoing(Struct, frozen=True):
    """The process of an awake model is ending without an order: it died, or it was given up.

    EXITED follows once nothing is left of it; until then nothing may be sent to it.
    """

    model: str
    generation: int
    error: LlmsnapError


class ModelDeaf(Struct, frozen=True):
    """The server of an awake model takes no connections any more, though its process lives.

    It is replaced once its answers have ended.
    """

    model: str
    generation: int


class NeedChanged(Struct, frozen=True):
    """The bytes that `model` needs a device were learned anew."""

    model: str
    need: Mapping[str, int]


class NeedEstimated(Struct, frozen=True):
    """All that is known of the need of `model` is an estimate; what was learned holds no more.

    Bytes a device; no `estimate`: nothing is known. `certain` is the part of it that is sure.
    """

    model: str
    estimate: Mapping[str, int] | None = None
    certain: Mapping[str, int] = struct_field(default_factory=dict)


class ForeignChanged(Struct, frozen=True):
    """Other programs now use so many bytes of `device`."""

    device: str
    used_bytes: int


class AbilityChanged(Struct, frozen=True):
    """What a model's sleep driver can do became known, or changed."""

    model: str
    can_sleep: bool
    can_pause: bool
    tier: str = "ram"
    tier_bytes: int = 0
    lower_tier: str = ""
    lower_bytes: int = 0


class LackChanged(Struct, frozen=True):
    """What `model` lacks to be started is another now; None: nothing that is known."""

    model: str
    lack: LlmsnapError | None


class UnloadRequested(Struct, frozen=True):
    """An administrator wants `model` gone; running answers may go on for `timeout_s`."""

    model: str
    timeout_s: float


class SleepRequested(Struct, frozen=True):
    """An administrator wants idle `model` asleep; ignored in any state but READY and idle."""

    model: str


class KeepRequested(Struct, frozen=True):
    """A client wants idle `model` put away `keep_s` after its last use, and not before."""

    model: str
    keep_s: float


class ReleaseRequested(Struct, frozen=True):
    """An administrator wants all memory back for `for_s`: everything sleeps or stops.

    Running answers are paused, or else go on for `timeout_s`. Who comes waits, or is refused.
    """

    for_s: float = inf
    refuse: bool = False
    timeout_s: float = inf


class ResumeRequested(Struct, frozen=True):
    """Models may load again."""


class Reconfigured(Struct, frozen=True, kw_only=True):
    """Other settings hold from now on; what runs goes on, as far as they allow it.

    The processes of models in `outdated` are replaced, and those of models that aren't in `specs`
    end, once their answers have ended. `capacity` and `tiers` are as for the scheduler's start.
    """

    specs: tuple[ModelSpec, ...]
    outdated: frozenset[str] = frozenset()
    capacity: Mapping[str, int]
    tiers: Mapping[str, int]
    schedule: Schedule
    constraints: Constraints


class ShutdownRequested(Struct, frozen=True):
    """Nothing may start any more. Running answers may go on for `grace_s`.

    The processes of `staying` are left as they are then, if they are awake or asleep.
    """

    grace_s: float
    staying: frozenset[str] = frozenset()


class Found(Struct, frozen=True, kw_only=True):
    """A process of `model` that an earlier proxy left, and that is to be gone on with."""

    model: str
    generation: int
    tier: str = ""
    """Where its bytes are, if it is asleep; empty: it is awake."""
    tier_bytes: int = 0


class Adopted(Struct, frozen=True):
    """All that was found at the start; comes before any other event."""

    found: tuple[Found, ...]


class Tick(Struct, frozen=True):
    """`next_deadline` has come."""


Event = (
    RequestArrived
    | RequestFinished
    | ModelChanged
    | ModelGoing
    | ModelDeaf
    | NeedChanged
    | NeedEstimated
    | ForeignChanged
    | AbilityChanged
    | LackChanged
    | UnloadRequested
    | SleepRequested
    | KeepRequested
    | ReleaseRequested
    | ResumeRequested
    | Reconfigured
    | ShutdownRequested
    | Adopted
    | Tick
)


# ---- actions -----------------------------------------------------------------------------------


class Admit(Struct, frozen=True):
    """Let the client with `ticket` through to its model."""

    ticket: int
    phases: Phases = NO_WAIT


class Reject(Struct, frozen=True):
    """Answer the client with `ticket`, who is waiting, with `error`."""

    ticket: int
    error: LlmsnapError
    phases: Phases = NO_WAIT
    """How it has spent its wait."""


class Abort(Struct, frozen=True):
    """End the answer of `ticket`, who was admitted: its process is gone or going."""

    ticket: int
    error: LlmsnapError


@dataclass(frozen=True, slots=True)
class Order:
    """What happens now to a generation of `model`, and why."""

    model: str
    generation: int
    cause: Cause = field(default=ASKED, compare=False)


@dataclass(frozen=True, slots=True)
class Start(Order):
    """Start it; news of it carries its number."""


@dataclass(frozen=True, slots=True)
class Sleep(Order):
    """Put it to sleep; with requests in flight it is a pause."""


@dataclass(frozen=True, slots=True)
class PageOut(Order):
    """Move it, which sleeps, on to its lower tier."""


@dataclass(frozen=True, slots=True)
class Wake(Order):
    """Wake it, which sleeps or is being paged out."""


@dataclass(frozen=True, slots=True)
class Stop(Order):
    """End its process."""


Action = Admit | Reject | Abort | Start | Sleep | PageOut | Wake | Stop


# ---- what readers see --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """One model as the scheduler sees it now. For showing, never for deciding."""

    model: str
    state: State
    generation: int
    in_flight: int
    waiting: int
    paused: int
    """How many of `in_flight` stand still because the model was put to sleep under them."""
    pinned: bool
    unloading: bool
    ready_at: float | None
    """On the scheduler's clock; None: not since the proxy started."""
    used_at: float | None
    """End of the last request, on the scheduler's clock."""
    fails: int
    retry_at: float | None
    """Until then requests are refused (back-off), on the scheduler's clock."""
    round_trip_s: float
    back_s: float
    """How long it should take to be ready again: a wake, or a start where it doesn't sleep."""
    need: Mapping[str, int] | None
    error: str | None
    """Why the last generation ended, when it ended by itself."""
    exit_code: int | None = None
    kept_s: float | None = None
    """How long a client wants it kept after its last use; None: it goes by its settings."""
