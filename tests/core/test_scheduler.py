"""R13, R14, and what the scheduler shows of itself."""

from __future__ import annotations

from math import inf

import pytest

from llmsnap.core.constraints import Free
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Event, RequestArrived, Start, Tick
from llmsnap.core.schedule import Schedule
from llmsnap.core.scheduler import Scheduler
from tests.core.play import (
    GIB,
    Play,
    arrive,
    done,
    exited,
    failed,
    model,
    ready,
    shutdown,
    slept,
    unload,
    woken,
)


def test_r13_without_limits_there_is_no_deadline() -> None:
    """Nobody waits, no timer runs: nothing rings."""
    play = Play(model("a"))
    assert play.scheduler.next_deadline == inf
    play.up("a")
    assert play.scheduler.next_deadline == inf


def test_r13_the_earliest_limit_rings() -> None:
    """Fair at 55, awake for 100 at 100, ttl never while it serves, max wait at 650."""
    play = Play(model("a", min_awake_s=100.0, ttl_s=5.0), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(50, arrive(2, "b"))
    rings = []
    while play.scheduler.next_deadline < inf:
        rings.append(play.scheduler.next_deadline)
        play.until(rings[-1])
    assert rings == [55, 100, 650]


def test_r13_a_tick_too_early_does_nothing() -> None:
    """The alarm stands."""
    play = Play(model("a", ttl_s=60.0))
    play.up("a")
    assert play.at(30, Tick()) == []
    assert play.scheduler.next_deadline == 60


@pytest.mark.parametrize("period_s", [0.4, 1.0, 1.5])
def test_r14_a_wait_under_a_flood_has_a_bound(period_s: float) -> None:
    """One request for b, while a takes one after the other (adv.py, users.md 11)."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(0, "a"))
    play.at(10, ready("a"))
    answers = {0: 11.6}
    play_flood(play, answers, since=12, until=100, period_s=period_s)
    play.at(100, arrive(9999, "b"))
    play_flood(play, answers, since=100.1, until=140, period_s=period_s)
    assert play.state("b") is State.STARTING
    started_at = next(now for now, _, actions in play.scheduler.history if Start("b", 1) in actions)
    drain_s, sleep_s = 1.6, 4.0
    assert started_at - 100 <= 5 + drain_s + sleep_s + 1e-6


def play_flood(
    play: Play, answers: dict[int, float], *, since: float, until: float, period_s: float
) -> None:
    """A client of a every `period_s`, each answered in 1.6 s; a sleeps within 4 s."""
    now, asleep_at = since, inf
    while now < until:
        due = [ticket for ticket, end in answers.items() if end <= now]
        for ticket in sorted(due, key=answers.__getitem__):
            orders = play.at(max(answers.pop(ticket), play.now), done(ticket))
            if "sleep a" in orders:
                asleep_at = play.now + 4.0
        if asleep_at <= now:
            play.at(max(asleep_at, play.now), slept("a"))
            return
        ticket = round(now * 1000)
        if "admit" in " ".join(play.at(now, arrive(ticket, "a"))):
            answers[ticket] = now + 1.6
        now += period_s


def test_r14_two_floods_take_turns_of_min_awake() -> None:
    """Each swap serves for as long as it is worth, instead of one batch a swap (F1)."""
    play = Play(model("a"), model("b"))
    tickets = iter(range(1, 100_000))
    now, swaps = 0.0, 0
    news: dict[str, float] = {}
    serving: list[tuple[float, int]] = []
    while now < 400:
        orders = []
        for name, at in list(news.items()):
            if at <= now:
                del news[name]
                is_up = play.state(name) in (State.STARTING, State.WAKING)
                event = _arrived(play, name) if is_up else slept(name, _generation(play, name))
                orders += play.at(now, event)
        while serving and serving[0][0] <= now:
            orders += play.at(now, done(serving.pop(0)[1]))
        for name in "ab":
            orders += play.at(now, arrive(next(tickets), name))
        for order in orders:
            verb, what = order.split()
            if verb == "admit":
                serving.append((now + 1.0, int(what)))
            else:
                news[what] = now + 4.0
                swaps += verb in ("start", "wake")
        now += 1.0
    # A turn is 16 s awake, a drain, and 8 s for the way out and in.
    assert 400 / 30 <= swaps <= 400 / 20


def _generation(play: Play, name: str) -> int:
    return play.scheduler.view(name).generation


def _arrived(play: Play, name: str) -> Event:
    come = ready if play.state(name) is State.STARTING else woken
    return come(name, _generation(play, name))


def test_a_view_shows_a_model_as_it_is() -> None:
    """Counts, times and the need, on the scheduler's clock."""
    play = Play(model("a", can_pause=True), model("b", pinned=False))
    before = play.scheduler.view("a")
    assert (before.state, before.generation) == (State.STOPPED, 0)
    assert (before.ready_at, before.used_at, before.retry_at, before.error) == (None,) * 4
    play.at(0, arrive(1, "a"))
    play.at(3, ready("a"))
    play.at(20, arrive(2, "b"))
    view = play.scheduler.view("a")
    assert (view.state, view.generation, view.in_flight, view.waiting) == (State.READY, 1, 1, 0)
    assert (view.ready_at, view.used_at) == (3, 3)
    assert view.need == {"gpu0": 20 * GIB}
    assert play.scheduler.view("b").waiting == 1
    assert play.until(40) == [(35.0, "sleep a")]
    assert play.scheduler.view("a").paused == 1


def test_a_view_shows_what_an_administrator_and_a_failure_left() -> None:
    """That it is being unloaded, or why it ended."""
    play = Play(model("a"), model("b", 4))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, unload("a", 60))
    assert play.scheduler.view("a").unloading
    play.at(2, arrive(2, "b"))
    play.at(3, failed("b"))
    view = play.scheduler.view("b")
    assert (view.state, view.fails, view.retry_at) == (State.FAILED, 1, 3)
    assert view.error == "b has a bad flag"
    assert not view.unloading


def test_views_are_sorted_by_name_and_a_stranger_has_none() -> None:
    """Whatever the order of the file."""
    scheduler = Play(model("b"), model("c"), model("a")).scheduler
    assert [view.model for view in scheduler.views()] == ["a", "b", "c"]
    with pytest.raises(KeyError):
        scheduler.view("nope")


def test_idle_means_that_no_process_is_left() -> None:
    """A model that is asleep has one."""
    play = Play(model("a"), model("b"))
    assert play.scheduler.idle
    play.up("a")
    play.at(1, arrive(1, "b"))
    play.at(2, slept("a"))
    play.at(3, failed("b"))
    assert not play.scheduler.idle
    play.at(4, shutdown())
    play.at(5, exited("a"))
    assert play.scheduler.idle


def test_history_keeps_the_last_events_with_what_they_ordered() -> None:
    """When, what, and what came of it; no more than a thousand."""
    now = 5.0
    scheduler = Scheduler(
        [model("a")],
        capacity={"gpu0": 24 * GIB},
        tiers={},
        schedule=Schedule(),
        constraints=Free(),
        clock=lambda: now,
    )
    actions = scheduler.handle(RequestArrived(1, "a"))
    assert list(scheduler.history) == [(5.0, RequestArrived(1, "a"), tuple(actions))]
    for _ in range(1200):
        scheduler.handle(Tick())
    assert len(scheduler.history) == 1000
