"""Random walks: every rule at once, against a world that keeps books of its own."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from llmsnap.core.messages import Event
from tests.core.world import World, build, script

SEEDS = 130
ACCIDENTS = (
    "served",
    "left",
    "aborted",
    "pauses",
    "recalls",
    "refused to sleep",
    "paged out",
    "refused to page out",
    "refused to wake",
    "wakes while paging",
    "failures",
    "ooms",
    *(f"replaced when {state}" for state in ("ready", "asleep", "starting", "sleeping")),
    "alarms checked",
    "rejected BackingOff",
    "rejected ConcurrencyLimited",
    "rejected DoesNotFit",
    "rejected ModelIncomplete",
    "rejected ModelNotFound",
    "rejected ModelUnloaded",
    "rejected Released",
    "rejected ShuttingDown",
    "rejected StartFailed",
    "rejected WaitedTooLong",
    "adopted ready",
    "adopted asleep",
    "crowded",
    *(event.__name__ for event in get_args(Event)),
)
"""What must have happened often."""
TALLIES: dict[int, Counter[str]] = {}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_walk_loses_a_ticket(seed: int) -> None:
    """Whatever happens, in whatever order: each ticket has an end, and no load is for nothing."""
    world = build(seed)
    script(world, 280)
    world.run()
    TALLIES[seed] = world.tally
    lost = {n: c.model for n, c in world.clients.items() if c.state != "ended"}
    assert not lost, f"no end for {lost}"
    assert world.tally["loads"] <= most_loads(world)
    if world.shutting_down:
        assert world.scheduler.idle
        assert not world.processes


def test_the_walks_met_every_accident() -> None:
    """Together they are long enough, and nothing that may happen was left out."""
    if len(TALLIES) < SEEDS:
        pytest.skip("only some of the walks were run")
    total = sum(TALLIES.values(), Counter[str]())
    assert total["events"] >= 100_000
    for what in ACCIDENTS:
        assert total[what] >= 20, f"{what} happened only {total[what]} times"


def most_loads(world: World) -> int:
    """R14: a load is for a ticket, for a paused answer, or to make good a failure.

    The default model comes back besides, as often as it likes.
    """
    pins = sum(spec.pinned for spec in world.specs.values())
    pins += world.tally["pinned by an edit"] + world.tally["replaced"] + world.tally["released"]
    asked_for = world.tally["tickets"] + world.tally["pauses"] + world.tally["recalls"]
    return asked_for + world.tally["failures"] + pins
