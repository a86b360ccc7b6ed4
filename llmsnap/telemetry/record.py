"""What is remembered of a request, of a swap and of a process's end: plain values.

A request's record is made when the model it wants is known and filled in on the hot path; it is
final once it is handed to listeners. Moments are on the monotonic clock (`time.monotonic`), and 0
where there was none; instants for people are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Final, Literal, Protocol

from msgspec import Struct

from llmsnap.core.cause import Cause
from llmsnap.core.messages import NO_WAIT, Phases
from llmsnap.telemetry.captures import Capture
from llmsnap.telemetry.tokens import Excerpt, Tokens

StartKind = Literal["awake", "woken", "started", "resumed"]
MoveKind = Literal["wake", "start", "sleep", "page_out", "stop"]
Result = Literal["ok", "failed", "refused", "cancelled"]

CLIENT_LEFT: Final = 499
"""What nginx calls the status of a request whose client left before an answer had begun."""


class Departure(Struct, frozen=True):
    """A model that made room."""

    model: str
    kind: MoveKind


class MoveRecord(Struct, kw_only=True):
    """One way of a model up (`wake`, `start`: a swap) or down (`sleep`, `page_out`, `stop`)."""

    model: str
    kind: MoveKind
    generation: int
    cause: Cause
    driver: str = ""
    """The sleep driver; empty for a start or a stop, and where none was known."""
    began_at: float
    began: float = 0.0
    """The same in Unix seconds."""
    ended_at: float = 0.0
    result: Result = "ok"
    error: str = ""
    phases: Phases = NO_WAIT
    """Of a swap: what those who waited longest for it waited for."""
    departures: tuple[Departure, ...] = ()
    """Of a swap: the models that made room for it."""
    paused: int = 0
    """Of a sleep: how many answers it stopped in the middle."""
    moved_bytes: Mapping[str, int] = {}
    """What a sleep, a page-out or a wake moved, by place."""

    @property
    def duration_s(self) -> float:
        """Seconds from the order to the end of it."""
        return self.ended_at - self.began_at

    @property
    def swap_s(self) -> float:
        """Seconds that a swap took: from the first order to make room until the model was up."""
        return self.phases.evict_s + self.duration_s

    @property
    def is_swap(self) -> bool:
        """Whether it brought the model up."""
        return self.kind in ("wake", "start")


class ExitRecord(Struct, kw_only=True):
    """The end of one process."""

    model: str
    generation: int
    reason: Literal["ordered", "crashed", "start_failed", "out_of_memory"]
    at: float
    ended: float = 0.0
    """The same in Unix seconds."""
    error: str = ""


class Pauses(Struct):
    """How often, and for how long, an answer stood still because its model was put to sleep."""

    count: int = 0
    ended_s: float = 0.0
    since: float | None = None

    def begin(self, now: float) -> None:
        """Note that the model is being put to sleep."""
        self.count += 1
        self.since = now

    def end(self, now: float) -> None:
        """Note that the model is awake again, or that the answer has ended."""
        self.ended_s = self.total_s(now)
        self.since = None

    def total_s(self, now: float) -> float:
        """Return the seconds up to `now`."""
        return self.ended_s if self.since is None else self.ended_s + now - self.since


class Held(Protocol):
    """The right to use a model, as far as a record needs it."""

    @property
    def phases(self) -> Phases: ...

    @property
    def swap(self) -> MoveRecord | None: ...

    @property
    def pauses(self) -> Pauses | None: ...


class RequestRecord(Struct, kw_only=True):
    """One request for a model. Its arrival is the moment in which it takes its place."""

    model: str
    path: str
    """As the model's server knows it, without its query."""
    client: str
    """Who asked: an address."""
    arrived_at: float
    arrived: float = 0.0
    """The same in Unix seconds."""
    phases: Phases = NO_WAIT
    """What it waited for before it was forwarded."""
    held: Held | None = None
    """Its right to the model, while it has it or waits for it."""
    pauses: Pauses | None = None
    paused_before_s: float = 0.0
    """How long it was paused before the first byte."""
    forwarded_at: float = 0.0
    first_byte_at: float = 0.0
    """When the answer began."""
    content_at: float = 0.0
    """When the first byte of the answer's body came that says something."""
    ended_at: float = 0.0
    status: int = 0
    content_type: bytes = b""
    """Of the answer, as its server wrote it."""
    is_stream: bool = False
    error: str = ""
    swap: MoveRecord | None = None
    """The way up that it waited for, itself or with others."""
    excerpt: Excerpt | bytes | None = None
    """What is kept of the answer for `tokens`, or all of it; gone once they are read."""
    tokens: Tokens | None = None
    parting: str = ""
    """Where its prompt parted from the last one of its conversation, in words."""
    selector: str = ""
    """Which selector has chosen the model."""
    capture: Capture | None = None
    """Set to keep the request and its answer whole."""

    # ---- on the hot path -----------------------------------------------------------------------

    def forwarded(self, held: Held) -> None:
        """Note that the model is there, and that the request goes to it now."""
        self.held = held
        self.phases = held.phases
        self.forwarded_at = monotonic()

    def begin(self, status: int, *, is_stream: bool, excerpt: Excerpt | bytes | None) -> None:
        """Note that the answer begins. Without an `excerpt` its tokens aren't read."""
        self.first_byte_at = now = monotonic()
        self.status = status
        self.is_stream = is_stream
        self.excerpt = excerpt
        if self.held is not None and self.held.pauses is not None:
            self.paused_before_s = self.held.pauses.total_s(now)

    def feed(self, pieces: list[bytes]) -> None:
        """Look at what comes of the answer's body, which passes as it is."""
        if not self.content_at and not (self.is_stream and _is_silent(pieces)):
            self.content_at = monotonic()
        if isinstance(self.excerpt, Excerpt):
            self.excerpt.feed(pieces)
        if self.capture is not None:
            self.capture.feed(pieces)

    def end(self, *, is_whole: bool) -> None:
        """Note the end; not `is_whole`: the client didn't get all of an answer."""
        self.ended_at = now = monotonic()
        if not (is_whole or self.error):
            self.error = "the client left"
            self.status = self.status or CLIENT_LEFT
        held, self.held = self.held, None
        if held is not None:
            if not self.forwarded_at:
                self.phases = held.phases
            self.swap = held.swap
            self.pauses = held.pauses
            if self.pauses is not None and self.pauses.since is not None:
                self.pauses.end(now)

    # ---- for readers ---------------------------------------------------------------------------

    @property
    def first_byte_s(self) -> float:
        """Seconds from the arrival to the first byte of the answer; the end, where none came."""
        return (self.first_byte_at or self.ended_at) - self.arrived_at

    @property
    def prefill_s(self) -> float:
        """Seconds from the forwarding to the first byte, without pauses; 0 if never forwarded."""
        if not self.forwarded_at:
            return 0.0
        waited_s = 0.0 if self.phases is NO_WAIT else self.phases.total_s
        return max(0.0, self.first_byte_s - waited_s - self.paused_before_s)

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the arrival to the first token, as near as bytes can tell; None: none came.

        An answer in one piece comes when its last token is there: what the server says it took for
        all of them is taken off.
        """
        if not self.content_at:
            return None
        seconds = self.content_at - self.arrived_at
        if not self.is_stream and self.tokens and self.tokens.generation_s is not None:
            seconds = max(0.0, seconds - self.tokens.generation_s)
        return seconds

    @property
    def duration_s(self) -> float:
        """Seconds from the arrival to the end."""
        return self.ended_at - self.arrived_at

    @property
    def start(self) -> StartKind:
        """How the model was found."""
        if self.paused_before_s:
            return "resumed"
        if self.phases is NO_WAIT:
            return "awake"
        if self.phases.start_s:
            return "started"
        return "woken" if self.phases.wake_s else "awake"

    def spent(self) -> dict[str, float]:
        """Return the seconds of each phase that there was; they add up to `first_byte_s`."""
        spent = phases_spent(self.phases)
        if prefill_s := self.prefill_s:
            spent["prefill"] = prefill_s
        elif not self.forwarded_at:  # it never got any further
            rest_s = self.first_byte_s - sum(spent.values())
            spent = {"queue": 0.0} | spent
            spent["queue"] += rest_s
        if self.paused_before_s:
            spent["pause"] = self.paused_before_s
        return spent


PHASES: Final = tuple(name.removesuffix("_s") for name in Phases.__dataclass_fields__)
"""The phases before a request is forwarded, in their order."""


def phases_spent(phases: Phases) -> dict[str, float]:
    """Return the seconds of those phases that there were."""
    if phases is NO_WAIT:
        return {}
    spent = ((name, getattr(phases, f"{name}_s")) for name in PHASES)
    return {name: seconds for name, seconds in spent if seconds}


def _is_silent(pieces: list[bytes]) -> bool:
    """Whether these are comments of an event stream, or nothing."""
    return all(piece.startswith(b":") and b"\n\n" not in piece[:-2] for piece in pieces if piece)
