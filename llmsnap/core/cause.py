"""Why a model is made to come or go: what the scheduler says along with its orders."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Why(StrEnum):
    """Kinds of causes; few, so that they can be counted apart."""

    REQUESTED = "requested"
    """A client waits for it."""
    PINNED = "pinned"
    """It is to be up at all times."""
    DEFAULT = "default"
    """It comes back whenever there is room."""
    RESUMED = "resumed"
    """Its clients wait in the middle of their answers."""
    ROOM = "room"
    """Another model can't be up beside it."""
    TIER = "tier"
    """It is asleep where another model is to sleep."""
    IDLE = "idle"
    """Nobody has used it for `sleepAfter`."""
    TTL = "ttl"
    """Nobody has used it for `ttl`."""
    ASKED = "asked"
    """An administrator wants it so."""
    REFUSED = "refused"
    """It couldn't be woken, time and again."""
    MISFIT = "misfit"
    """It was learned to need more than it can ever get."""
    RECONFIGURED = "reconfigured"
    """The configuration has another process for it, or none."""
    DEAF = "deaf"
    """Its server takes no connections any more."""
    RELEASED = "released"
    """An administrator wants all memory for something else."""
    CROWDED = "crowded"
    """An earlier proxy left it behind, and it can't be up, or asleep, beside the others."""
    SHUTDOWN = "shutdown"
    """The proxy ends."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an order was given."""

    why: Why
    model: str = ""
    """For whom, when for another model."""
    idle_s: float = 0.0
    """For how long nobody had used it."""

    def __str__(self) -> str:
        match self.why:
            case Why.ROOM:
                return f"evicted by {self.model}"
            case Why.TIER:
                return f"its room is needed for {self.model}"
            case Why.IDLE | Why.TTL:
                return f"{self.why} {self.idle_s:.0f} s"
            case Why.REFUSED:
                return "it couldn't be woken, time and again"
            case Why.RECONFIGURED:
                return "the configuration has changed"
            case Why.DEAF:
                return "its server takes no connections any more"
            case Why.CROWDED:
                return "it was left behind, and there is no room for it beside the others"
            case _:
                return str(self.why)


ASKED = Cause(Why.ASKED)
RECONFIGURED = Cause(Why.RECONFIGURED)
DEAF = Cause(Why.DEAF)
RELEASED = Cause(Why.RELEASED)
