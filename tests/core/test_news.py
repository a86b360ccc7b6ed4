"""R4: what the shell reports."""

from __future__ import annotations

import pytest

from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import (
    AbilityChanged,
    Event,
    ModelChanged,
    ModelDeaf,
    ModelGoing,
    ModelSpec,
    NeedChanged,
    NeedEstimated,
    SleepRequested,
)
from llmsnap.errors import UpstreamLost
from tests.core.play import (
    GIB,
    Play,
    arrive,
    done,
    exited,
    failed,
    foreign,
    model,
    oom,
    ready,
    slept,
    unload,
    woken,
)


def test_r04_ready_lets_in_all_who_wait() -> None:
    """A load is for everybody who waits for it."""
    play = Play(model("a"))
    for ticket in (1, 2, 3):
        play.at(0, arrive(ticket, "a"))
    assert play.at(5, ready("a")) == ["admit 1", "admit 2", "admit 3"]
    assert play.scheduler.view("a").ready_at == 5


def test_r04_a_failed_start_refuses_all_who_wait() -> None:
    """With the reason, each with its own error; the model has failed."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, arrive(2, "a"))
    assert play.at(1, failed("a")) == ["reject 1: StartFailed", "reject 2: StartFailed"]
    view = play.scheduler.view("a")
    assert (view.state, view.fails, view.error) == (State.FAILED, 1, "a has a bad flag")


def test_r04_a_start_that_fails_without_a_word_has_an_error_all_the_same() -> None:
    """Whoever waits is told something."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(1, ModelChanged("a", 1, Trigger.EXITED))
    assert play.error().message == "'a' ended before it was ready; see its log"


def test_r04_an_exit_code_is_kept() -> None:
    """Of a start and of a crash, for whoever asks why."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(1, ModelChanged("a", 1, Trigger.EXITED, UpstreamLost("a"), exit_code=3))
    assert play.scheduler.view("a").exit_code == 3
    play.at(2, arrive(2, "a"))
    play.at(3, ready("a", 2))
    play.at(4, ModelGoing("a", 2, UpstreamLost("a")))
    play.at(5, ModelChanged("a", 2, Trigger.EXITED, UpstreamLost("a"), exit_code=4))
    assert play.scheduler.view("a").exit_code == 4


def test_r04_the_back_off_doubles() -> None:
    """The first retry is at once, then 2, 4, 8 … and 60 s at the most; ready resets it."""
    play = Play(model("a"))
    now, waits = 0.0, []
    for generation in range(1, 9):
        play.at(now, arrive(generation, "a"))
        play.at(now, failed("a", generation))
        retry_at = play.scheduler.view("a").retry_at
        assert retry_at is not None
        waits.append(retry_at - now)
        now = retry_at
    assert waits == [0, 2, 4, 8, 16, 32, 60, 60]
    play.at(now, arrive(99, "a"))
    play.at(now, ready("a", 9))
    assert play.scheduler.view("a").fails == 0
    assert play.scheduler.view("a").retry_at is None


def test_r04_a_crash_ends_what_it_served_and_starts_cold_for_those_who_wait() -> None:
    """Held-back tickets keep their places, and get a fresh start."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(90, arrive(2, "b"))
    play.at(96, arrive(3, "a"))
    assert play.at(97, exited("a")) == ["abort 1: UpstreamLost", "start b"]
    play.at(98, done(2))
    assert play.at(99, ready("b")) == ["sleep b"]
    assert play.at(100, slept("b")) == ["start a"]
    assert play.at(101, ready("a", 2)) == ["admit 3"]


def test_r04_nothing_is_sent_to_a_process_that_is_going() -> None:
    """From the first word of its end: who was served is told, who comes waits for a cold start."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(1, ready("a"))
    error = UpstreamLost("a is going")
    assert play.at(2, ModelGoing("a", 1, error)) == ["abort 1: UpstreamLost"]
    assert play.at(3, arrive(2, "a")) == []
    assert play.scheduler.view("a").state is State.STOPPING
    assert play.at(4, exited("a")) == ["start a"]
    assert play.at(5, ModelGoing("a", 1, error)) == []


def test_r04_a_process_that_takes_no_connections_is_replaced() -> None:
    """Its answers end first; who comes meanwhile waits for the next one."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(1, ready("a"))
    assert play.at(2, ModelDeaf("a", 1)) == []
    assert play.at(3, arrive(2, "a")) == []
    assert play.at(4, done(1)) == ["stop a"]
    assert play.at(5, exited("a")) == ["start a"]
    assert play.at(6, ready("a", 2)) == ["admit 2"]
    assert play.at(7, ModelDeaf("a", 1)) == []
    assert play.at(8, arrive(3, "a")) == ["admit 3"]


def test_r04_a_deaf_process_that_is_idle_ends_at_once() -> None:
    """And isn't deaf any more once it is gone."""
    play = Play(model("a"))
    play.up("a")
    assert play.at(1, ModelDeaf("a", 1)) == ["stop a"]
    play.at(2, exited("a"))
    assert play.at(3, arrive(1, "a")) == ["start a"]
    assert play.at(4, ready("a", 2)) == ["admit 1"]


def test_r04_a_failed_sleep_ends_the_process_and_nothing_else() -> None:
    """Who waited for the memory gets it; who waits for the model starts it cold."""
    play = Play(model("a"), model("b"))
    play.up("a")
    assert play.at(1, arrive(1, "b")) == ["sleep a"]
    assert play.at(5, exited("a")) == ["start b"]
    assert play.state("a") is State.STOPPED
    assert play.scheduler.view("a").error == "a died"


def test_r04_a_refused_sleep_leaves_the_model_up() -> None:
    """It can't sleep, as was told before: whoever wants its memory has it stopped instead."""
    play = Play(model("a"), model("b"))
    play.up("a")
    assert play.at(1, arrive(1, "b")) == ["sleep a"]
    assert play.at(2, AbilityChanged("a", False, False)) == []
    assert play.at(2, woken("a")) == ["stop a"]
    assert play.at(3, exited("a")) == ["start b"]


def test_r04_a_refused_pause_lets_the_answers_go_on() -> None:
    """Nobody is told anything; the place in the queue goes."""
    play = Play(model("a", can_pause=True), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    assert play.until(35) == [(35.0, "sleep a")]
    play.at(36, AbilityChanged("a", False, False))
    assert play.at(36, woken("a")) == []
    assert play.scheduler.view("a").paused == 0
    assert play.at(37, done(1)) == ["stop a"]


def asleep_and_wanted(*more: ModelSpec) -> Play:
    """`a` sleeps, and client 1 has it woken at 10."""
    play = Play(model("a"), *more)
    play.up("a")
    play.at(1, SleepRequested("a"))
    play.at(2, slept("a"))
    assert play.at(10, arrive(1, "a")) == ["wake a"]
    return play


def test_r04_a_refused_wake_is_tried_again_in_a_while() -> None:
    """The process is as well as before, and who waits keeps the place."""
    play = asleep_and_wanted()
    assert play.at(11, slept("a")) == []
    assert play.state("a") is State.ASLEEP
    assert play.until(12) == [(12.0, "wake a")]
    assert play.at(13, slept("a")) == []
    assert play.until(15) == [(15.0, "wake a")]
    assert play.at(16, woken("a")) == ["admit 1"]
    assert play.phases(1).total_s == 6


def test_r14_wakes_that_are_refused_again_and_again_become_a_cold_start() -> None:
    """The fourth in a row ends the process; nobody waits for ever for it to be woken."""
    play = asleep_and_wanted()
    for at in (11, 13, 16):
        assert play.at(at, slept("a")) == []
        assert [order for _, order in play.until(2 * at - 10)] == ["wake a"]
    assert play.at(23, slept("a")) == ["stop a"]
    assert play.at(24, exited("a")) == ["start a"]
    assert play.at(30, ready("a", 2)) == ["admit 1"]


def test_r04_a_wake_that_goes_well_wipes_the_slate() -> None:
    """Refusals count in a row only."""
    play = asleep_and_wanted()
    play.at(11, slept("a"))
    play.until(12)
    play.at(13, woken("a"))
    play.at(14, done(1))
    play.at(15, SleepRequested("a"))
    play.at(16, slept("a"))
    assert play.at(40, arrive(2, "a")) == ["wake a"]
    assert play.at(41, slept("a")) == []
    assert play.until(42) == [(42.0, "wake a")]


def test_r04_nobody_takes_the_room_of_a_refused_wake() -> None:
    """A younger request can't have it meanwhile; it can as soon as nobody waits any more."""
    play = asleep_and_wanted(model("b"))
    play.at(11, slept("a"))
    assert play.at(11.5, arrive(2, "b")) == []
    assert play.at(11.6, done(1)) == ["start b"]


def test_r04_a_paused_answer_is_lost_when_its_model_can_not_be_woken() -> None:
    """Its client gets the reason."""
    play = Play(model("a", can_pause=True), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    assert play.until(35) == [(35.0, "sleep a")]
    play.at(36, slept("a"))
    play.at(37, ready("b"))
    assert play.at(38, done(2)) == ["sleep b"]
    assert play.at(39, slept("b")) == ["wake a"]
    for refused_at in (40, 42, 45):
        assert play.at(refused_at, slept("a")) == []
        assert len(play.until(2 * refused_at - 39)) == 1
    assert play.at(60, slept("a")) == ["abort 1: UpstreamLost", "stop a"]


def test_r04_a_paused_answer_is_lost_with_its_process() -> None:
    """502 for those who were paused, and their place in the queue goes."""
    play = Play(model("a", can_pause=True), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    assert play.until(35) == [(35.0, "sleep a")]
    assert play.at(36, exited("a")) == ["abort 1: UpstreamLost", "start b"]
    play.at(37, ready("b"))
    assert play.at(38, done(2)) == []


def test_r04_out_of_memory_tries_once_more_with_a_larger_need() -> None:
    """Tickets keep their places; the second time they hear what was needed and what was there."""
    play = Play(model("a", 10), model("p", 4, pinned=True))
    play.at(0, ready("p"))
    play.at(0, foreign("gpu0", 2))
    play.at(0, arrive(1, "a"))
    assert play.at(1, oom("a")) == ["start a"]
    assert play.scheduler.view("a").need == {"gpu0": round(11.5 * GIB)}
    assert play.at(2, oom("a", 2)) == ["reject 1: OutOfMemory"]
    assert "18 GiB of gpu0 was there, 11.5 GiB was thought to do" in str(play.error())
    assert "a is out of memory" in str(play.error())


def test_r04_out_of_memory_of_an_unknown_need() -> None:
    """It had all that there is, twice."""
    play = Play(model("a", None))
    play.at(0, arrive(1, "a"))
    assert play.at(1, oom("a")) == ["start a"]
    assert play.at(2, oom("a", 2)) == ["reject 1: OutOfMemory"]
    assert "24 GiB of gpu0 was there, what it needs isn't known" in str(play.error())


def test_r04_an_estimate_comes_later() -> None:
    """From then on it counts: another fits beside it."""
    play = Play(model("a", None), model("b", 10))
    assert play.at(0, NeedEstimated("a", {"gpu0": 12 * GIB}, {"gpu0": 8 * GIB})) == []
    play.up("a", at=1)
    assert play.at(2, arrive(1, "b")) == ["start b"]


def test_r04_what_is_certain_of_an_estimate_may_be_too_much() -> None:
    """Weights over the capacity: 503, and nobody makes room for it."""
    play = Play(model("a", None), model("b", 10))
    play.up("b")
    play.at(1, NeedEstimated("a", {"gpu0": 32 * GIB}, {"gpu0": 28 * GIB}))
    assert play.at(2, arrive(1, "a")) == ["reject 1: DoesNotFit"]


def test_r04_what_was_learned_may_be_forgotten() -> None:
    """A model that is up stays in the books as it was; the next load is alone."""
    play = Play(model("a", 10), model("b", 10))
    play.up("a")
    assert play.at(1, NeedEstimated("a")) == []
    play.up("b", at=2)
    play.at(3, unload("a"))
    play.at(4, exited("a"))
    assert play.at(5, arrive(1, "a")) == ["sleep b"]


def test_r04_getting_ready_clears_what_ran_out() -> None:
    """The next time it has its second try again."""
    play = Play(model("a", 10))
    play.at(0, arrive(1, "a"))
    play.at(1, oom("a"))
    play.at(2, ready("a", 2))
    play.at(3, exited("a", 2))
    play.at(4, arrive(2, "a"))
    assert play.at(5, oom("a", 3)) == ["start a"]


def test_r04_out_of_memory_makes_room_before_the_second_try() -> None:
    """With the need raised, a neighbour that was thought to fit must go (users.md 77)."""
    play = Play(model("a", 10), model("b", 14))
    play.up("a")
    play.at(1, arrive(1, "b"))
    assert play.at(2, oom("b")) == ["sleep a"]
    assert play.at(3, slept("a")) == ["start b"]


def test_r04_a_measured_need_is_not_raised() -> None:
    """What was measured on the way counts as it is."""
    play = Play(model("a", 10))
    play.at(0, arrive(1, "a"))
    play.at(1, NeedChanged("a", {"gpu0": 13 * GIB}))
    assert play.at(2, oom("a")) == ["start a"]
    assert play.scheduler.view("a").need == {"gpu0": 13 * GIB}


def test_r04_out_of_memory_that_can_never_fit_is_refused() -> None:
    """The raised need is over the capacity: 503, and no second try."""
    play = Play(model("a", 22))
    play.at(0, arrive(1, "a"))
    assert play.at(1, oom("a")) == ["reject 1: DoesNotFit"]


def test_r04_an_estimate_that_was_too_small_grows_too() -> None:
    """It stays an estimate: when it is larger than the device, the model loads alone."""
    play = Play(model("a", None, estimate={"gpu0": 22 * GIB}), model("s", 1))
    play.up("s")
    play.at(0, arrive(1, "a"))
    assert play.at(1, oom("a")) == ["sleep s"]
    assert play.at(2, slept("s")) == ["start a"]
    assert play.scheduler.view("a").need is None


def test_r04_late_news_is_ignored() -> None:
    """A generation that is gone has nothing to say."""
    play = Play(model("a"))
    play.up("a")
    play.at(1, exited("a"))
    play.at(2, arrive(1, "a"))
    for news in (ready("a", 1), slept("a", 1), woken("a", 1), exited("a", 1)):
        assert play.at(3, news) == []
    assert play.state("a") is State.STARTING


NEWS = (Trigger.READY, Trigger.SLEPT, Trigger.PAGED, Trigger.WOKEN, Trigger.EXITED)


@pytest.mark.parametrize("trigger", NEWS[:-1])
def test_r04_news_that_does_not_apply_any_more_is_ignored(trigger: Trigger) -> None:
    """A start may succeed in the same moment in which the stop was ordered."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    assert play.at(1, unload("a")) == ["reject 1: ModelUnloaded", "stop a"]
    assert play.at(1, ModelChanged("a", 1, trigger)) == []
    assert play.state("a") is State.STOPPING
    assert play.at(2, exited("a")) == []


@pytest.mark.parametrize("trigger", [t for t in Trigger if t not in NEWS])
def test_r04_an_order_is_no_news(trigger: Trigger) -> None:
    """Only the scheduler gives orders."""
    play = Play(model("a"))
    play.up("a")
    assert play.at(1, ModelChanged("a", 1, trigger)) == []
    assert play.state("a") is State.READY


@pytest.mark.parametrize(
    "event",
    [
        ModelChanged("nope", 1, Trigger.READY),
        NeedChanged("nope", {"gpu0": 1}),
        NeedEstimated("nope", {"gpu0": 1}),
        AbilityChanged("nope", can_sleep=True, can_pause=True),
        foreign("nope", 1),
    ],
    ids=lambda event: type(event).__name__,
)
def test_r04_news_of_strangers_is_ignored(event: Event) -> None:
    """Unknown models and devices never raise."""
    assert Play(model("a")).at(0, event) == []


def test_r04_a_need_is_learned() -> None:
    """One that shrank makes room, one that grew takes it."""
    play = Play(model("a"), model("b", 10))
    play.up("a")
    play.at(1, arrive(1, "a"))
    assert play.at(2, arrive(2, "b")) == []
    assert play.at(3, NeedChanged("a", {"gpu0": 14 * GIB})) == ["start b"]


def test_r04_growth_while_awake_is_capped() -> None:
    """A model that is up is never thought to need more than pinned ones leave."""
    play = Play(model("a"), model("p", 4, pinned=True))
    play.at(0, ready("p"))
    play.up("a")
    play.at(1, NeedChanged("a", {"gpu0": 23 * GIB}))
    assert play.scheduler.view("a").need == {"gpu0": 20 * GIB}


def test_r04_an_unknown_need_is_learned_and_lets_others_in() -> None:
    """The first load is alone; afterwards it is known what fits beside it."""
    play = Play(model("a", None), model("b", 4))
    play.up("a")
    play.at(1, arrive(1, "a"))
    assert play.at(2, arrive(2, "b")) == []
    assert play.at(3, NeedChanged("a", {"gpu0": 12 * GIB})) == ["start b"]


def test_r04_a_driver_is_found_and_lost() -> None:
    """What was asleep stays in the books as it was, and can still wake."""
    play = Play(model("a", can_sleep=False), model("b"), ram=20)
    play.up("a")
    play.at(1, AbilityChanged("a", can_sleep=True, can_pause=False, tier_bytes=20 * GIB))
    assert play.at(2, arrive(1, "b")) == ["sleep a"]
    play.at(3, slept("a"))
    play.at(3, AbilityChanged("a", can_sleep=False, can_pause=False))
    play.at(4, ready("b"))
    play.at(5, done(1))
    assert play.at(6, arrive(2, "a")) == ["stop b"]
    assert play.at(7, exited("b")) == ["wake a"]


def test_r04_the_round_trip_is_measured() -> None:
    """Orders and their news, on the scheduler's own clock."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(10, arrive(1, "b"))
    play.at(13, slept("a"))
    play.at(14, ready("b"))
    play.at(15, done(1))
    play.at(20, arrive(2, "a"))
    play.at(24, slept("b"))
    play.at(26, woken("a"))
    assert play.scheduler.view("a").round_trip_s == 3 + 2
    assert play.scheduler.view("b").round_trip_s == 4 + 4  # its wake is still a guess


def test_r04_the_end_of_a_start_is_no_way_out() -> None:
    """Only a stop of a model that was ready says how long it takes to leave."""
    play = Play(model("a", can_sleep=False))
    play.at(0, arrive(1, "a"))
    play.at(1, unload("a"))
    play.at(40, exited("a"))
    assert play.scheduler.view("a").round_trip_s == 8
    play.up("a", at=50)
    play.at(60, unload("a"))
    play.at(70, exited("a", 2))
    assert play.scheduler.view("a").round_trip_s == 0 + 10
