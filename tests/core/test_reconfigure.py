"""R16: other settings while models run."""

from __future__ import annotations

from typing import Any

from llmsnap.config.sections import GroupConfig
from llmsnap.core.constraints import Constraints, Free, GroupRules
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelSpec, Reconfigured, SleepRequested
from llmsnap.core.schedule import Schedule
from tests.core.play import GIB, Play, arrive, done, exited, model, ready, slept, unload, woken


def new(
    *specs: ModelSpec,
    outdated: str = "",
    room: float = 24,
    ram: float = 200,
    constraints: Constraints | None = None,
    **schedule: Any,
) -> Reconfigured:
    """Another configuration."""
    return Reconfigured(
        specs=specs,
        outdated=frozenset(outdated),
        capacity={"gpu0": round(room * GIB)},
        tiers={"ram": round(ram * GIB), "swap": 200 * GIB},
        schedule=Schedule(**schedule),
        constraints=constraints or Free(),
    )


def test_r16_an_idle_model_with_other_settings_stays_up() -> None:
    """And goes by them from now on."""
    play = Play(model("a"))
    play.up("a")
    assert play.at(10, new(model("a", ttl_s=30.0))) == []
    assert play.state("a") is State.READY
    assert play.until(31) == [(30.0, "stop a")]


def test_r16_a_model_that_sleeps_goes_on_sleeping() -> None:
    """With what was found out about how it can."""
    play = Play(model("a", sleep_after_s=5.0, ability_follows=True))
    play.up("a")
    assert play.until(5) == [(5.0, "sleep a")]
    play.at(6, slept("a"))
    assert play.at(7, new(model("a", ability_follows=True, can_sleep=False))) == []
    assert play.state("a") is State.ASLEEP
    assert play.at(8, arrive(1, "a")) == ["wake a"]


def test_r16_an_outdated_model_that_is_idle_ends_at_once() -> None:
    """Who wants it next gets the new process."""
    play = Play(model("a"))
    play.up("a")
    assert play.at(1, new(model("a"), outdated="a")) == ["stop a"]
    assert play.at(2, arrive(1, "a")) == []
    assert play.at(3, exited("a")) == ["start a"]
    assert play.at(4, ready("a", 2)) == ["admit 1"]


def test_r16_an_outdated_model_finishes_its_answers() -> None:
    """However long they take; who comes meanwhile waits for the new process."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, new(model("a"), outdated="a")) == []
    assert play.at(2, arrive(2, "a")) == []
    assert play.until(500) == []
    assert play.at(500, done(1)) == ["stop a"]
    assert play.at(501, exited("a")) == ["start a"]
    assert play.at(502, ready("a", 2)) == ["admit 2"]


def test_r16_an_outdated_start_is_given_up() -> None:
    """Nobody wants what it would become."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    assert play.at(1, new(model("a"), outdated="a")) == ["stop a"]
    assert play.at(2, ready("a")) == []
    assert play.at(3, exited("a")) == ["start a"]


def test_r16_an_outdated_model_that_sleeps_is_stopped() -> None:
    """It would wake as what it isn't to be any more."""
    play = Play(model("a", sleep_after_s=5.0))
    play.up("a")
    play.until(5)
    play.at(6, slept("a"))
    assert play.at(7, new(model("a"), outdated="a")) == ["stop a"]


def test_r16_an_outdated_model_is_stopped_on_its_way_to_sleep_and_back() -> None:
    """Whatever is under way."""
    for state in (State.SLEEPING, State.WAKING):
        play = Play(model("a", sleep_after_s=5.0))
        play.up("a")
        play.until(5)
        if state is State.WAKING:
            play.at(6, slept("a"))
            assert play.at(7, arrive(1, "a")) == ["wake a"]
        assert play.state("a") is state
        assert play.at(8, new(model("a"), outdated="a")) == ["stop a"]


def test_r16_paused_answers_of_an_outdated_model_are_given_whole() -> None:
    """It is woken for them, and ends after them."""
    play = Play(
        model("a", can_pause=True, time_slice_s=1.0),
        model("b"),
        preempt_after_s=5.0,
        fair_after_s=1,
    )
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, arrive(2, "b"))
    assert (6.0, "sleep a") in play.until(7)
    play.at(8, slept("a"))
    play.at(9, ready("b"))
    assert play.at(10, new(model("a"), model("b"), outdated="a")) == []
    assert play.at(11, done(2)) == ["sleep b"]
    assert play.at(12, slept("b")) == ["wake a"]
    play.at(12.5, arrive(3, "a"))
    assert play.at(13, woken("a")) == []
    assert play.at(14, done(1)) == ["stop a"]
    assert play.at(15, exited("a")) == ["start a"]


def test_r16_a_removed_model_ends_and_is_forgotten() -> None:
    """With its answers given; nobody new gets it."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, new(model("b"))) == []
    assert play.at(2, arrive(2, "a")) == ["reject 2: ModelNotFound"]
    assert play.at(3, done(1)) == ["stop a"]
    play.at(4, exited("a"))
    assert [view.model for view in play.scheduler.views()] == ["b"]


def test_r16_who_waits_for_a_removed_model_is_still_served() -> None:
    """It was there when they came."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    assert play.at(1, new()) == []
    assert play.at(2, ready("a")) == ["admit 1"]
    assert play.at(3, done(1)) == ["stop a"]
    play.at(4, exited("a"))
    assert play.scheduler.views() == []


def test_r16_a_removed_model_that_is_there_again_is_replaced() -> None:
    """What runs may be another process than the new file describes."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, new())
    assert play.at(2, new(model("a"))) == []
    assert play.at(3, arrive(2, "a")) == []
    assert play.at(4, done(1)) == ["stop a"]
    assert play.at(5, exited("a")) == ["start a"]


def test_r16_a_new_model_can_be_asked_for() -> None:
    """And a pinned one comes by itself."""
    play = Play(model("a", 5))
    assert play.at(1, new(model("a", 5), model("b", 5), model("c", 5, pinned=True))) == ["start c"]
    assert play.at(2, arrive(1, "b")) == ["start b"]


def test_r16_a_model_that_is_pinned_now_wakes() -> None:
    """It is to be up from now on."""
    play = Play(model("a", sleep_after_s=5.0))
    play.up("a")
    play.until(5)
    play.at(6, slept("a"))
    assert play.at(7, new(model("a", pinned=True))) == ["wake a"]
    play.at(8, woken("a"))
    assert play.at(9, new(model("a"))) == []
    assert play.state("a") is State.READY


def test_r16_a_pinned_model_that_waits_for_room_is_free_to_be_unpinned() -> None:
    """It doesn't call for itself any more."""
    play = Play(model("a"), model("p", 10, pinned=False))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, new(model("a"), model("p", 10, pinned=True))) == []
    play.at(2, new(model("a"), model("p", 10)))
    assert play.at(3, done(1)) == []
    assert play.state("p") is State.STOPPED


def test_r16_less_room_counts_from_the_next_load_on() -> None:
    """Nobody leaves for a number; who comes next finds the room that there is now."""
    play = Play(model("a", 10), model("b", 10), model("c", 10))
    play.up("a")
    play.up("b", ticket=-2)
    specs = (model("a", 10), model("b", 10), model("c", 10))
    assert play.at(20, new(*specs, room=12)) == []
    assert play.at(40, arrive(1, "c")) == ["sleep a", "sleep b"]


def test_r16_more_is_declared_for_a_model_that_is_up() -> None:
    """The books have it at once, and nobody comes beside it."""
    play = Play(model("a", 10), model("b", 10))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, new(model("a", 20), model("b", 10)))
    assert play.at(2, arrive(2, "b")) == []


def test_r16_models_of_unknown_size_may_stay_where_they_are() -> None:
    """Though none of them would be let in beside the other."""
    play = Play(model("a", 10), model("b", 10), model("c", 1))
    play.up("a")
    play.up("b", ticket=-2)
    assert play.at(20, new(model("a", None), model("b", None), model("c", 1))) == []
    assert {play.state("a"), play.state("b")} == {State.READY}


def test_r16_one_that_was_alone_may_have_an_unpinned_one_beside_it() -> None:
    """The pinned one was let in beside it, and isn't pinned any more."""
    play = Play(model("a", None), model("p", 4, pinned=True))
    play.until(0)
    play.at(0, ready("p"))
    play.up("a", at=0)
    assert play.at(20, new(model("a", None), model("p", 4))) == []
    assert {play.state("a"), play.state("p")} == {State.READY}


def test_r16_nobody_else_comes_beside_one_whose_size_isnt_known() -> None:
    """Not even where the one that may stay beside it has left its place."""
    play = Play(model("a", None), model("b", 4), model("p", 4, pinned=True))
    play.until(0)
    play.at(0, ready("p"))
    play.up("a", at=0)
    play.at(20, new(model("a", None), model("b", 4), model("p", 4)))
    play.at(21, unload("p"))
    play.at(22, exited("p"))
    assert play.at(40, arrive(1, "b")) == ["sleep a"]


def test_r16_a_smaller_tier_keeps_who_sleeps_there() -> None:
    """The next one to sleep has the coldest leave it."""
    play = Play(model("a", 10, sleep_after_s=5.0), model("b", 10))
    play.up("a")
    play.until(5)
    play.at(6, slept("a"))
    play.up("b", at=7, ticket=-2)
    assert play.at(8, new(model("a", 10), model("b", 10), ram=5)) == []
    assert play.state("a") is State.ASLEEP
    assert play.at(9, SleepRequested("b")) == ["stop b"]


def test_r16_other_groups_count_from_the_next_load_on() -> None:
    """Who is up stays; who comes puts out whom it may not have beside it."""
    play = Play(model("a", 5), model("b", 5), model("c", 5))
    play.up("a")
    play.up("b", ticket=-2)
    groups = {"g": GroupConfig(members=("a", "b", "c"))}
    specs = (model("a", 5), model("b", 5), model("c", 5))
    assert play.at(20, new(*specs, constraints=GroupRules.from_config(groups, []))) == []
    assert play.at(40, arrive(1, "c")) == ["sleep a", "sleep b"]


def test_r16_a_failed_start_may_be_tried_again_at_once() -> None:
    """Whatever was wrong may be mended."""
    play = Play(model("a"))
    for generation in (1, 2):
        play.at(generation, arrive(generation, "a"))
        play.at(generation, exited("a", generation))
    assert play.at(3, arrive(3, "a")) == ["reject 3: BackingOff"]
    play.at(3, new(model("a"), outdated="a"))
    assert play.at(3, arrive(4, "a")) == ["start a"]


def test_r16_an_administrator_can_hurry_an_outdated_model() -> None:
    """An unload has a limit, a reload has none."""
    play = Play(model("a"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, new(model("a"), outdated="a"))
    assert play.at(2, unload("a", 3.0)) == []
    assert play.until(5) == [(5.0, "abort 1: ModelUnloaded"), (5.0, "stop a")]


def test_r16_the_longest_wait_is_the_new_one() -> None:
    """For those who wait already, too."""
    play = Play(model("a"), model("b"), max_wait_s=600.0)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, arrive(2, "b"))
    play.at(2, new(model("a", min_awake_s=1000.0), model("b"), max_wait_s=10.0))
    assert play.until(11) == [(11.0, "reject 2: WaitedTooLong")]
