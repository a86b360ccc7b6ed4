"""R1-R3: places in the queue."""

from __future__ import annotations

import pytest

from llmsnap.core.messages import Event, LackChanged, RequestArrived, SleepRequested
from llmsnap.errors import ModelIncomplete
from tests.core.play import (
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
)


def lacks(name: str) -> Event:
    """The file of a model isn't there."""
    return LackChanged(name, ModelIncomplete(f"the file of {name} isn't there"))


def test_r01_order_is_by_arrival() -> None:
    """Of two who want the same room, the first gets it, also at the same moment."""
    play = Play(model("a"), model("b"), model("c"))
    play.up("a")
    play.at(20, arrive(1, "a"))
    play.at(21, arrive(2, "c"))
    play.at(21, arrive(3, "b"))
    assert play.at(22, done(1)) == ["sleep a"]
    assert play.at(23, slept("a")) == ["start c"]


def test_r01_a_pause_is_a_place_as_old_as_the_pause() -> None:
    """Who came before the pause goes first, who came after it waits behind it."""
    play = Play(model("a", can_pause=True), model("b"), model("c"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    assert play.until(36) == [(35.0, "sleep a")]
    play.at(36, arrive(3, "c"))
    assert play.at(37, slept("a")) == ["start b"]
    play.at(40, ready("b"))
    assert play.at(41, done(2)) == ["sleep b"]
    assert play.at(45, slept("b")) == ["wake a"]


def test_r02_an_unknown_model_is_refused() -> None:
    """With its name, and where to look."""
    play = Play(model("a"))
    assert play.at(0, arrive(1, "nope")) == ["reject 1: ModelNotFound"]
    assert play.error().message == (
        "no model 'nope' is configured; GET /v1/models lists those that are"
    )


def test_r02_nobody_comes_in_during_the_shutdown() -> None:
    """503, at once."""
    play = Play(model("a"))
    play.up("a")
    play.at(1, shutdown())
    assert play.at(2, arrive(1, "a")) == ["reject 1: ShuttingDown"]


def test_r02_the_concurrency_limit_counts_who_waits_and_who_is_served() -> None:
    """One over it is a 429; the next is let in when one has ended."""
    play = Play(model("a", concurrency_limit=2))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, arrive(2, "a")) == ["admit 2"]
    assert play.at(2, arrive(3, "a")) == ["reject 3: ConcurrencyLimited"]
    assert play.error().retry_after_s == 1.0
    play.at(3, done(1))
    assert play.at(4, arrive(4, "a")) == ["admit 4"]


def test_r02_administrators_do_not_count_against_the_limit() -> None:
    """A preload takes nobody's place, and is never over the limit."""
    play = Play(model("a", concurrency_limit=1))
    assert play.at(0, RequestArrived(1, "a", limited=False)) == ["start a"]
    assert play.at(1, arrive(2, "a")) == []
    assert play.at(2, RequestArrived(3, "a", limited=False)) == []
    assert play.at(3, arrive(4, "a")) == ["reject 4: ConcurrencyLimited"]


def test_r02_what_never_fits_is_refused_and_nothing_evicted() -> None:
    """The message names what it needs, what there is, and who stands there pinned."""
    play = Play(model("p", 10, pinned=True), model("b"), model("a", 4))
    play.up("a")
    assert play.at(1, arrive(1, "b")) == ["reject 1: DoesNotFit"]
    message = play.error().message
    assert "'b' needs 20 GiB of gpu0" in message
    assert "14 GiB of 24 GiB are available beside pinned 'p' (10 GiB)" in message


def test_r02_a_model_that_failed_is_refused_until_it_may_be_tried_again() -> None:
    """With the last error, and when."""
    play = Play(model("a"))
    for generation in (1, 2):
        play.at(generation, arrive(generation, "a"))
        play.at(generation, failed("a", generation))
    assert play.at(2.5, arrive(3, "a")) == ["reject 3: BackingOff"]
    assert "a has a bad flag" in play.error().message
    assert play.error().retry_after_s == 1.5
    assert play.at(4, arrive(4, "a")) == ["start a"]


def test_r02_a_short_gap_is_remembered() -> None:
    """From idle to the next arrival; while somebody is there, another one is no gap."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(3, arrive(1, "a"))
    play.at(20, arrive(2, "a"))  # not a gap of 20
    play.at(21, done(1))
    play.at(22, done(2))
    assert play.at(23, arrive(3, "b")) == []
    assert play.until(27) == []
    assert play.until(40) == [(28.0, "sleep a")]  # fair, and long awake


def test_r02_the_same_ticket_twice_is_one() -> None:
    """A repeated event changes nothing."""
    play = Play(model("a"))
    play.up("a")
    assert play.at(1, arrive(1, "a")) == ["admit 1"]
    assert play.at(1, arrive(1, "a")) == []
    assert play.scheduler.view("a").in_flight == 1


def test_r03_the_last_one_out_starts_the_clock() -> None:
    """`used_at` is the end of the last request, not of any."""
    play = Play(model("a"))
    play.up("a")
    play.at(1, arrive(1, "a"))
    play.at(2, arrive(2, "a"))
    play.at(5, done(2))
    assert play.scheduler.view("a").used_at == 0
    play.at(9, done(1))
    assert play.scheduler.view("a").used_at == 9


def test_r03_a_load_under_way_is_not_called_off() -> None:
    """The client leaves, the model comes up all the same, and is there for the next."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    assert play.at(1, done(1)) == []
    assert play.at(10, ready("a")) == []
    assert play.at(11, arrive(2, "a")) == ["admit 2"]


@pytest.mark.parametrize("ticket", [7, -3])
def test_r03_an_unknown_ticket_is_ignored(ticket: int) -> None:
    """Whoever it was, it is gone."""
    play = Play(model("a"))
    assert play.at(0, done(ticket)) == []


def test_r02_nobody_leaves_for_a_start_that_is_bound_to_fail() -> None:
    """Who asks for a model without its file is refused at once; once it is there, it loads."""
    play = Play(model("a"), model("b", None))
    play.up("a")
    assert play.at(20, lacks("b")) == []
    assert play.at(21, arrive(2, "b")) == ["reject 2: ModelIncomplete"]
    assert "isn't there" in str(play.scheduler.view("b").error)
    assert play.at(22, LackChanged("b", None)) == []
    assert play.at(40, arrive(3, "b")) == ["sleep a"]


def test_r02_who_waits_for_a_model_whose_file_goes_is_refused() -> None:
    """Also one who waits until its last process has ended."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(20, arrive(1, "a"))
    assert play.at(21, arrive(2, "b")) == []
    assert play.at(22, lacks("b")) == ["reject 2: ModelIncomplete"]
    play.at(23, lacks("a"))
    assert play.at(24, done(1)) == []
    assert play.at(25, unload("a")) == ["stop a"]
    assert play.at(26, arrive(3, "a")) == []
    assert play.at(27, exited("a")) == ["reject 3: ModelIncomplete"]


def test_r02_what_is_up_stays_up_without_its_file() -> None:
    """Awake it serves, and asleep it can be woken."""
    play = Play(model("a"))
    play.up("a")
    play.at(1, lacks("a"))
    assert play.at(2, arrive(1, "a")) == ["admit 1"]
    play.at(3, done(1))
    play.at(4, SleepRequested("a"))
    play.at(5, slept("a"))
    assert play.at(6, arrive(2, "a")) == ["wake a"]
