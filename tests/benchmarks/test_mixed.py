"""The simulation of mixed work: always the same, complete, and with an eye on who overcommits."""

from __future__ import annotations

import pytest

from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import Action, Event, ModelChanged, RequestArrived, Start
from tests.benchmarks.machine import HOSTS, Machine, home
from tests.benchmarks.mixed import ALONE, LRU, OURS, SLEEPING, STOPPING, Job, play, verdicts, visits
from tests.benchmarks.traces import Turn, Visit


def job(scheduler: str = OURS, host: str = "home", load: str = "0.5") -> Job:
    """A short one."""
    return Job(host, load, scheduler, seed=1, requests=120)


@pytest.mark.parametrize("scheduler", [STOPPING, SLEEPING, LRU, OURS])
@pytest.mark.parametrize("host", HOSTS)
def test_everybody_is_served(host: str, scheduler: str) -> None:
    """By each scheduler on each host, with books that hold; and some had to wait."""
    figures = play(job(scheduler, host))

    assert len(figures.waits) >= 120
    assert figures.waits[-1] > 0
    assert figures.swaps >= 6


@pytest.mark.parametrize("load", [ALONE, "0.9"])
def test_the_same_seed_gives_the_same_figures(load: str) -> None:
    """To the last digit; another seed gives others."""
    one = play(job(load=load))

    assert one == play(job(load=load))
    assert one != play(Job("home", load, OURS, seed=2, requests=120))


def test_all_schedulers_get_the_same_requests() -> None:
    """Or they couldn't be compared."""
    assert visits(job(OURS)) == visits(job(LRU))


class Reckless:
    """Starts whatever is asked for at once."""

    next_deadline = float("inf")

    def handle(self, event: Event) -> list[Action]:
        """Start it."""
        return [Start(event.model, 1)] if isinstance(event, RequestArrived) else []


def test_who_overcommits_is_caught() -> None:
    """The machine doesn't trust a scheduler's books."""
    both = [Visit(0.0, (Turn(model, 1.0),)) for model in ("big", "coder")]

    with pytest.raises(AssertionError, match="gpu0 is overcommitted"):
        Machine(home()).play(Reckless(), both)


class Forgetful(Reckless):
    """Starts it and admits nobody."""

    def handle(self, event: Event) -> list[Action]:
        """Start it once."""
        if isinstance(event, ModelChanged):
            assert event.trigger is Trigger.READY
        return super().handle(event)


def test_a_request_that_is_forgotten_is_noticed() -> None:
    """It may not just be missing in the means."""
    with pytest.raises(AssertionError, match="never served"):
        Machine(home()).play(Forgetful(), [Visit(0.0, (Turn("chat", 1.0),))])


def test_goals_that_arent_reached_are_told() -> None:
    """With the figure that was."""
    good = {"swaps": 10.0, "mean": 1.0, "longest": 5.0}
    bad = {"swaps": 19.0, "mean": 1.9, "longest": 5.0}
    means = {("home", "0.5", rival): bad for rival in (STOPPING, SLEEPING, LRU)}

    said = verdicts({**means, ("home", "0.5", OURS): good})

    assert said[0].startswith("1.9 times fewer swaps")
    assert all(line.endswith("NOT REACHED") for line in said)
