"""Records of things that happened, and a database that keeps them."""

from __future__ import annotations

from functools import partial
from typing import Any

from llmsnap.core.cause import ASKED, Cause, Why
from llmsnap.core.messages import Phases
from llmsnap.telemetry.record import Departure, MoveRecord, RequestRecord
from llmsnap.telemetry.recorder import Batch
from llmsnap.telemetry.rows import SCHEMA
from llmsnap.telemetry.tokens import Tokens
from tests.helpers import database

opened = partial(database.opened, schema=SCHEMA)
"""The database of one proxy."""
NOON = 1_800_000_000.0
"""In Unix seconds."""
DAY_S = 86_400.0
WAITED = Phases(drain_s=0.2, evict_s=0.9, wake_s=3.0)
CACHED = Tokens(computed=56, cached=31_204, generated=410, prompt_s=0.25, generation_s=8.2)


def request(model: str = "a", *, at: float = NOON, **more: Any) -> RequestRecord:
    """A request that was served at once in two seconds, unless told otherwise."""
    settings: dict[str, Any] = {
        "status": 200,
        "content_type": b"application/json",
        "forwarded_at": 10.0,
        "first_byte_at": 10.5,
        "content_at": 10.5,
        "ended_at": 12.0,
    }
    return RequestRecord(
        model=model,
        path="/v1/completions",
        client="::1",
        arrived_at=10.0,
        arrived=at,
        **(settings | more),
    )


def wake(model: str = "a", *, at: float = NOON, **more: Any) -> MoveRecord:
    """A wake for which `b` was put to sleep."""
    settings: dict[str, Any] = {
        "cause": Cause(Why.REQUESTED),
        "phases": WAITED,
        "departures": (Departure("b", "sleep"),),
    }
    return move(model, "wake", at=at, **(settings | more))


def move(model: str, kind: Any, *, at: float = NOON, **more: Any) -> MoveRecord:
    """A way up or down that took three seconds."""
    settings: dict[str, Any] = {"cause": ASKED, "began_at": 7.0, "ended_at": 10.0}
    return MoveRecord(model=model, kind=kind, generation=1, began=at, **(settings | more))


def batch(*records: RequestRecord | MoveRecord) -> Batch:
    """What ended together."""
    requests = [one for one in records if isinstance(one, RequestRecord)]
    moves = [one for one in records if isinstance(one, MoveRecord)]
    return Batch(requests, moves, [])
