"""A scheduler on a stage: events in at stated times, orders out as short text.

Sizes are GiB, times are seconds. Alarms that lie before an event are delivered first, and must
order nothing unless the test asks for them with `until`.
"""

from __future__ import annotations

from math import inf
from typing import Any

from llmsnap.core.constraints import Constraints, Free
from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import (
    Abort,
    Action,
    Admit,
    Event,
    ForeignChanged,
    ModelChanged,
    ModelSpec,
    Phases,
    Reject,
    RequestArrived,
    RequestFinished,
    ShutdownRequested,
    Tick,
    UnloadRequested,
)
from llmsnap.core.schedule import Schedule
from llmsnap.core.scheduler import Scheduler
from llmsnap.errors import LlmsnapError, StartFailed, UpstreamLost

GIB = 1024**3


def model(name: str, size: float | None = 20, *, on: str = "gpu0", **more: Any) -> ModelSpec:
    """A model of `size` GiB a device (None: not known) that can sleep; its round trip is 8 s."""
    devices = tuple(on.split("+"))
    settings: dict[str, Any] = {
        "need": None if size is None else {device: round(size * GIB) for device in devices},
        "can_sleep": True,
        "tier_bytes": round((size or 0) * GIB),
        "round_trip_s": 8.0,
    }
    return ModelSpec(name=name, devices=devices, **(settings | more))


def arrive(ticket: int, name: str) -> Event:
    """A client asks for a model."""
    return RequestArrived(ticket, name)


def done(ticket: int) -> Event:
    """A client was served, or left."""
    return RequestFinished(ticket)


def ready(name: str, generation: int = 1) -> Event:
    """A start succeeded."""
    return ModelChanged(name, generation, Trigger.READY)


def slept(name: str, generation: int = 1) -> Event:
    """A model is asleep."""
    return ModelChanged(name, generation, Trigger.SLEPT)


def paged(name: str, generation: int = 1) -> Event:
    """A model that sleeps is in its lower tier."""
    return ModelChanged(name, generation, Trigger.PAGED)


def woken(name: str, generation: int = 1) -> Event:
    """A model is awake again."""
    return ModelChanged(name, generation, Trigger.WOKEN)


def exited(name: str, generation: int = 1) -> Event:
    """A process is gone, as ordered or by itself."""
    return ModelChanged(name, generation, Trigger.EXITED, UpstreamLost(f"{name} died"))


def failed(name: str, generation: int = 1) -> Event:
    """A start failed."""
    return ModelChanged(name, generation, Trigger.EXITED, StartFailed(f"{name} has a bad flag"))


def oom(name: str, generation: int = 1) -> Event:
    """A start failed because memory ran out."""
    error = StartFailed(f"{name} is out of memory")
    return ModelChanged(name, generation, Trigger.EXITED, error, oom=True)


def foreign(device: str, size: float) -> Event:
    """Other programs now use `size` GiB of a device."""
    return ForeignChanged(device, round(size * GIB))


def unload(name: str, timeout_s: float = 0.0) -> Event:
    """An administrator wants a model gone."""
    return UnloadRequested(name, timeout_s)


def shutdown(grace_s: float = 10.0) -> Event:
    """The proxy is to end."""
    return ShutdownRequested(grace_s)


class Play:
    """One scheduler with a clock of its own; every step checks the invariants."""

    def __init__(
        self,
        *models: ModelSpec,
        room: float | dict[str, float] = 24,
        ram: float = 200,
        swap: float = 200,
        constraints: Constraints | None = None,
        **schedule: float,
    ) -> None:
        rooms = room if isinstance(room, dict) else {"gpu0": room}
        self.now = 0.0
        self.actions: list[Action] = []
        self.scheduler = Scheduler(
            models,
            capacity={device: round(size * GIB) for device, size in rooms.items()},
            tiers={"ram": round(ram * GIB), "swap": round(swap * GIB)},
            schedule=Schedule(**schedule),
            constraints=constraints or Free(),
            clock=lambda: self.now,
        )

    def at(self, now: float, event: Event) -> list[str]:
        """Let `event` happen at `now`; return the orders. Nothing else may have happened before."""
        early = self._ring(now, inclusive=False)
        assert not early, f"before {event} at {now}: {early}"
        self.now = now
        return self._handle(event)

    def until(self, now: float) -> list[tuple[float, str]]:
        """Deliver the alarms up to `now`; return what they ordered, and when."""
        orders = self._ring(now, inclusive=True)
        self.now = now
        return orders

    def up(self, name: str, *, at: float = 0.0, ticket: int = -1) -> None:
        """Bring a model up with one request that ends at `at`, where its start took no time."""
        self.at(at, arrive(ticket, name))
        self.at(at, ready(name, self.scheduler.view(name).generation))
        self.at(at, done(ticket))

    def state(self, name: str) -> State:
        """Where a model is."""
        return self.scheduler.view(name).state

    def error(self) -> LlmsnapError:
        """The only error among the last orders."""
        (error,) = [a.error for a in self.actions if isinstance(a, Reject | Abort)]
        return error

    def phases(self, ticket: int) -> Phases:
        """The phases of a ticket that was just admitted, or refused."""
        ends = [action for action in self.actions if isinstance(action, Admit | Reject)]
        (phases,) = [end.phases for end in ends if end.ticket == ticket]
        return phases

    def _ring(self, end: float, *, inclusive: bool) -> list[tuple[float, str]]:
        orders = []
        while (alarm := self.scheduler.next_deadline) < end or (inclusive and alarm == end != inf):
            assert alarm >= self.now, "an alarm rang again at the same moment"
            self.now = alarm
            orders += [(alarm, order) for order in self._handle(Tick())]
        return orders

    def _handle(self, event: Event) -> list[str]:
        self.actions = self.scheduler.handle(event)
        self.scheduler.check_invariants()
        return [in_words(action) for action in self.actions]


def in_words(action: Action) -> str:
    """An action as short text: `start a`, `admit 3`, `reject 4: DoesNotFit`."""
    verb = type(action).__name__.lower()
    match action:
        case Admit(ticket):
            return f"{verb} {ticket}"
        case Reject(ticket, error) | Abort(ticket, error):
            return f"{verb} {ticket}: {type(error).__name__}"
        case _:
            return f"{verb} {action.model}"
