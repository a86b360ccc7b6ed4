"""What went wrong for users of other proxies, where the scheduler alone can show it."""

from __future__ import annotations

import itertools
from typing import Any

from llmsnap.config.sections import GroupConfig
from llmsnap.core.constraints import GroupRules
from llmsnap.core.lifecycle import State
from tests.core.play import (
    Play,
    arrive,
    done,
    exited,
    failed,
    foreign,
    model,
    ready,
    slept,
    unload,
)


def one_at_a_time(*names: str, **settings: Any) -> Play:
    """Models without sizes or drivers, of which the automatic group allows one."""
    groups = {"(default)": GroupConfig(members=names)}
    models = [model(name, 0, can_sleep=False, **settings) for name in names]
    return Play(*models, constraints=GroupRules.from_config(groups, []))


def test_u01_a_request_during_an_idle_unload_waits_and_starts_afresh() -> None:
    """It waits for the stop to finish, and every later request works as well."""
    play = one_at_a_time("a", ttl_s=2)
    play.up("a")
    assert play.until(2) == [(2.0, "stop a")]
    assert play.at(2.5, arrive(1, "a")) == []
    assert play.at(4, exited("a")) == ["start a"]
    assert play.at(5, ready("a", 2)) == ["admit 1"]
    assert play.at(5, arrive(2, "a")) == ["admit 2"]


def test_u03_a_grant_is_one_step() -> None:
    """A model that took a ticket isn't stopped in the same breath, one that stops takes none."""
    play = one_at_a_time("a", "b")
    play.up("a")
    now, tickets = 100.0, itertools.count(1)
    for generation in range(1, 200):
        first, second = next(tickets), next(tickets)
        other, own = ("b", "a") if generation % 2 else ("a", "b")
        assert play.at(now, arrive(first, own)) == [f"admit {first}"]
        assert play.at(now, arrive(second, other)) == []
        assert play.at(now + 10, done(first)) == [f"stop {own}"]
        play.at(now + 11, exited(own, play.scheduler.view(own).generation))
        up = ready(other, play.scheduler.view(other).generation)
        assert play.at(now + 12, up) == [f"admit {second}"]
        play.at(now + 13, done(second))
        now += 100


def test_u05_a_client_who_left_during_the_load_leaves_no_trap() -> None:
    """The idle model is evicted for another; one who wants it back waits for a fresh start."""
    play = one_at_a_time("a", "b")
    play.at(0, arrive(1, "a"))
    play.at(1, done(1))
    play.at(1.5, arrive(2, "b"))
    assert play.at(2, ready("a")) == ["stop a"]
    assert play.at(2.03, arrive(3, "a")) == []
    assert play.at(3, exited("a")) == ["start b"]
    assert play.at(4, ready("b")) == ["admit 2"]
    assert play.at(5, done(2)) == ["stop b"]
    assert play.at(6, exited("b")) == ["start a"]
    assert play.at(7, ready("a", 2)) == ["admit 3"]


def test_u06_a_loading_model_is_no_victim() -> None:
    """It serves the one it was loaded for; or he left, and then it may go."""
    play = one_at_a_time("a", "b")
    play.at(0, arrive(1, "a"))
    assert play.at(1, arrive(2, "b")) == []
    assert play.until(9) == []
    assert play.at(10, ready("a")) == ["admit 1"]
    assert play.at(11, done(1)) == ["stop a"]


def test_u09_many_first_requests_make_one_load() -> None:
    """One start, ten answers."""
    play = one_at_a_time("a")
    orders = [order for n in range(10) for order in play.at(n / 10, arrive(n, "a"))]
    assert orders == ["start a"]
    assert play.at(3, ready("a")) == [f"admit {n}" for n in range(10)]


def test_u11_requests_for_one_model_share_a_load() -> None:
    """A B C A B C while A is loaded: three loads instead of six, and nobody is forgotten."""
    play = one_at_a_time("a", "b", "c")
    play.up("a")
    orders = [o for n, name in enumerate("abcabc") for o in play.at(20, arrive(n, name))]
    assert orders == ["admit 0", "admit 3"]
    play.at(21, done(0))
    assert play.at(22, done(3)) == ["stop a"]
    assert play.at(23, exited("a")) == ["start b"]
    assert play.at(24, ready("b")) == ["admit 1", "admit 4"]
    play.at(25, done(1))
    assert play.at(26, done(4)) == ["stop b"]
    assert play.at(27, exited("b")) == ["start c"]
    assert play.at(28, ready("c")) == ["admit 2", "admit 5"]


def test_u14_an_unload_drains_for_as_long_as_it_was_told() -> None:
    """0 is now, 5 is five seconds, and the exit is what it waits for."""
    for timeout_s in (0, 5):
        play = one_at_a_time("a")
        play.at(0, arrive(1, "a"))
        play.at(0, ready("a"))
        orders = [(1.0, order) for order in play.at(1, unload("a", timeout_s))]
        orders += play.until(99)
        end = 1.0 + timeout_s
        assert orders == [(end, "abort 1: ModelUnloaded"), (end, "stop a")]
        assert play.scheduler.view("a").unloading
        play.at(100, exited("a"))
        assert play.scheduler.idle


def test_u21_over_the_limit_is_decided_before_any_byte() -> None:
    """While the first still waits for the load, the second is refused at once."""
    play = Play(model("a", concurrency_limit=1))
    assert play.at(0, arrive(1, "a")) == ["start a"]
    assert play.at(0, arrive(2, "a")) == ["reject 2: ConcurrencyLimited"]
    assert play.at(1, ready("a")) == ["admit 1"]


def test_u27_one_failed_start_is_not_the_end() -> None:
    """The next request tries again."""
    play = one_at_a_time("a")
    play.at(0, arrive(1, "a"))
    assert play.at(15, failed("a")) == ["reject 1: StartFailed"]
    assert play.at(15, arrive(2, "a")) == ["start a"]
    assert play.at(16, ready("a", 2)) == ["admit 2"]


def test_u70_ttl_starts_when_the_last_answer_ends() -> None:
    """Not when a request began: a long generation isn't unloaded half-way."""
    play = one_at_a_time("a", ttl_s=2)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.until(6) == []
    assert play.at(6, done(1)) == []
    assert play.until(99) == [(8.0, "stop a")]


def test_u71_in_flight_is_busy_however_silent() -> None:
    """No timer and no swap touches a model that thinks."""
    play = one_at_a_time("a", "b", ttl_s=2)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, arrive(2, "b"))
    assert play.until(500) == []
    assert play.state("a") is State.READY


def test_u73_foreign_memory_evicts_nobody_who_could_not_help() -> None:
    """Another program fills the card: our idle models stay, and what fits still loads."""
    play = Play(model("a", 2), model("b"), model("s", 1))
    play.up("a")
    play.at(1, foreign("gpu0", 20))
    play.at(2, arrive(1, "b"))
    assert play.until(99) == []
    assert play.state("a") is State.READY
    assert play.at(100, arrive(2, "s")) == ["start s"]


def test_u74_a_reload_waits_for_the_old_process() -> None:
    """Two of one model never exist side by side."""
    play = Play(model("a", 4, can_sleep=False, ttl_s=10.0))
    play.up("a")
    play.until(10)
    assert play.at(11, arrive(1, "a")) == []
    assert play.at(20, exited("a")) == ["start a"]


def test_u79_a_model_of_unknown_size_is_exclusive() -> None:
    """Declared ones share, an undeclared one doesn't."""
    play = Play(model("a", 8), model("b", 8), model("u", None))
    play.up("a")
    play.up("b", at=1)
    assert play.at(60, arrive(1, "u")) == ["sleep a", "sleep b"]
    play.at(61, slept("a"))
    assert play.at(62, slept("b")) == ["start u"]
