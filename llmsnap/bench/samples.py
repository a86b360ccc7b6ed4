"""What is measured: plain values, as they stand in a report's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from statistics import median
from typing import Final

from msgspec import Struct

from llmsnap.client.stream import waits_of

OURS: Final = "llmsnap"
"""The name of the server whose models are put into each state."""


class Scene(StrEnum):
    """In which state a model is when it is asked."""

    COLD = "cold disk"
    """It isn't up, and no file is in the page cache. The conversation is new."""
    CACHED = "page cache"
    """It isn't up; its file is in the page cache. The conversation is new."""
    RESTORED = "restored slots"
    """It isn't up; its conversation was saved when it went."""
    ASLEEP = "asleep"
    SWAP = "swap"
    """Another model was asked before, whatever the server did to this one for that."""
    NEW = "new text"
    """It is up, and the conversation is new."""
    AWAKE = "awake"


class Sample(Struct, frozen=True, kw_only=True):
    """One request. What isn't known is None."""

    server: str
    model: str
    scene: Scene
    length: int
    """Tokens of context that were asked for."""
    turn: int
    """Those of the same turn of different servers belong together."""
    asked_at: str
    """ISO 8601."""
    by: str = ""
    """The sleep driver that was asked for; empty: whichever the proxy has for it."""
    way: str = ""
    """How it was away: the sleep driver, or what became of it."""
    fault: str = ""
    """Why there is nothing else; empty: it went well."""
    first_s: float | None = None
    """From the request to the first text."""
    total_s: float | None = None
    phases_s: dict[str, float] = {}
    """What the server says of the time to its first byte."""
    prompt: int | None = None
    cached: int | None = None
    """Of the prompt: those that weren't computed again."""
    generated: int | None = None
    prefill_s: float | None = None
    """What the engine says it took for what wasn't cached."""
    tokens_per_s: float | None = None
    moved_bytes: int | None = None
    """Brought back from where it slept, or read from disks."""
    moved_s: float | None = None
    proxy_first_s: float | None = None
    """The proxy's own figure for the same request."""

    @property
    def ready_s(self) -> float | None:
        """Seconds until the model was there; None where the server doesn't say."""
        return sum(waits_of(self.phases_s).values()) if self.phases_s else None


class Spread(Struct, frozen=True):
    """A median with the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Return that of the values that there are; None: there are none."""
        known = [value for value in values if value is not None]
        return cls(median(known), min(known), max(known)) if known else None


class Case(Struct, frozen=True, order=True):
    """What is measured again and again."""

    model: str
    length: int
    scene: Scene
    server: str
    by: str = ""
    """The sleep driver; empty: whichever the proxy has."""

    @property
    def state(self) -> str:
        """In words."""
        return f"{self.scene} by {self.by}" if self.by else str(self.scene)

    @property
    def place(self) -> tuple[str, int, tuple[int, str, bool, str]]:
        """Where it stands among others: by model and length, then as `step` says."""
        return self.model, self.length, self.step

    @property
    def step(self) -> tuple[int, str, bool, str]:
        """Where its curve stands among others: from the coldest state on, our server first."""
        return list(Scene).index(self.scene), self.by, self.server != OURS, self.server


def by_case(samples: Iterable[Sample]) -> dict[Case, list[Sample]]:
    """Return the samples of each case, in the order in which the cases came first."""
    found: dict[Case, list[Sample]] = {}
    for one in samples:
        case = Case(one.model, one.length, one.scene, one.server, one.by)
        found.setdefault(case, []).append(one)
    return found


def good(samples: Iterable[Sample]) -> list[Sample]:
    """Return those that went well."""
    return [one for one in samples if not one.fault]


def ratio(ours: Sequence[Sample], theirs: Sequence[Sample]) -> Spread | None:
    """Return how many times as long theirs took to the first text, turn by turn."""
    mine = {one.turn: one.first_s for one in good(ours)}
    return Spread.of(
        one.first_s / first_s if one.first_s and (first_s := mine.get(one.turn)) else None
        for one in good(theirs)
    )
