"""What a desk is about, and what all desks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from llmsnap.errors import LlmsnapError, UpstreamLost
from llmsnap.sessions.outcome import Tell
from llmsnap.sessions.slots import Server, Slots
from llmsnap.sessions.vault import Vault

Standing = Literal["up", "leaving", "away"]
"""Up and awake; told to end; or neither: asleep, or gone by itself."""


class SlotSpoiled(UpstreamLost):
    """A restore went wrong half-way: what the process computes now can't be trusted."""


class Process(Server, Protocol):
    """One process of a model."""

    @property
    def generation(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """How a process was started, and what is worth keeping of it."""

    argv: Sequence[str]
    env: Mapping[str, str]
    min_tokens: int
    is_adopted: bool = False
    """Whether it served an earlier proxy, so that its slots may hold what nobody here knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all models share."""

    slots: Slots
    vault: Vault
    tell: Tell
    now: Callable[[], float]
    """Unix seconds."""
    standing: Callable[[str, int], Standing]
    """Says how it is with that process of a model now."""
    restart: Callable[[str, int, LlmsnapError], None]
    """Ends that process of a model because of an error, so that it starts afresh."""
    flush: Callable[[], None]
    """Has `answered` called for all requests that have ended."""

    def is_away(self, process: Process) -> bool:
        """Whether `process` sleeps, or has gone by itself."""
        return self.standing(process.model, process.generation) == "away"

    def spoiled(self, process: Process, why: str) -> SlotSpoiled:
        """Have `process` restarted; return what whoever waits for it is to be told."""
        error = SlotSpoiled(f"model {process.model!r}: {why}")
        self.restart(process.model, process.generation, error)
        return error
