"""R7, R8, R10: who makes room, and when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.play import Play, arrive, done, model, ready, slept, woken


def test_r07_idle_before_busy() -> None:
    """Nobody has to finish early while an idle model would do."""
    play = Play(model("a", 10), model("b", 10), model("w", 12))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.up("b", at=1)
    assert play.at(90, arrive(2, "w")) == ["sleep b"]


def test_r07_a_set_without_anybody_to_spare() -> None:
    """What the big one frees makes the small one's leaving needless."""
    play = Play(model("s", 4), model("big", 18), model("w", 20))
    play.up("s")
    play.up("big", at=1)
    assert play.at(90, arrive(1, "w")) == ["sleep big"]


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=6),
    st.integers(1, 24),
)
def test_r07_who_goes_is_enough_and_nobody_goes_for_nothing(
    sizes: list[tuple[int, bool]], wanted: int
) -> None:
    """Whoever is up, and however long: without any one of the victims the room wouldn't do."""
    room = 24
    models = [model(f"m{i}", size, pinned=False) for i, (size, _) in enumerate(sizes)]
    play = Play(*models, model("w", wanted), room=room)
    up: dict[str, int] = {}
    for i, (size, used_late) in enumerate(sizes):
        if sum(up.values()) + size > room:
            continue  # it would evict one of the others
        play.up(f"m{i}", at=10.0 * i, ticket=i)
        up[f"m{i}"] = size
        if used_late:
            play.at(10.0 * i + 1, arrive(100 + i, f"m{i}"))
            play.at(10.0 * i + 2, done(100 + i))
    orders = play.at(1000, arrive(999, "w"))
    gone = [order.removeprefix("sleep ") for order in orders if order.startswith("sleep ")]
    left = room - sum(size for name, size in up.items() if name not in gone)
    assert left >= wanted
    assert all(left - up[name] < wanted for name in gone)
    assert gone or orders == ["start w"]


def test_r07_the_cheapest_goes() -> None:
    """Long idle and quick to bring back; ties by name."""
    play = Play(model("a", 8), model("b", 8), model("c", 8), model("w", 8))
    play.up("a", at=0)
    play.up("b", at=0)
    play.up("c", at=50)
    assert play.at(60, arrive(1, "w")) == ["sleep a"]


def test_r07_only_models_on_a_short_device_go() -> None:
    """One that is idle elsewhere is left alone."""
    play = Play(
        model("a", 20, on="gpu1"), model("b", 20), model("w", 20), room={"gpu0": 24, "gpu1": 24}
    )
    play.up("a")
    play.up("b", at=1)
    assert play.at(60, arrive(1, "w")) == ["sleep b"]


def test_r07_no_busy_model_drains_before_the_waiter_is_fair() -> None:
    """Until fairAfter it goes on taking tickets; then it is closed."""
    play = Play(model("a"), model("b"), fair_after_s=30)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(50, arrive(2, "b"))
    assert play.at(79, arrive(3, "a")) == ["admit 3"]
    assert play.at(81, arrive(4, "a")) == []


def test_r07_older_tickets_still_enter_a_model_that_drains() -> None:
    """It is closed only to those who are younger than the one it drains for."""
    play = Play(model("a", 12), model("b", 12), model("w", 20))
    play.at(0, arrive(1, "b"))
    play.at(0, ready("b"))
    play.at(0, arrive(2, "a"))
    play.at(50, arrive(4, "w"))
    assert play.at(56, ready("a")) == ["admit 2"]


def test_r07_a_model_is_no_victim_before_it_served_those_it_was_loaded_for() -> None:
    """Though the one who wants its memory is older and fair (users.md 6)."""
    play = Play(model("a"), model("s", 4), model("w", 22))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(50, arrive(2, "w"))
    assert play.at(51, arrive(3, "s")) == ["start s"]
    assert play.until(60) == []
    assert play.at(61, ready("s")) == ["admit 3"]
    assert play.at(62, done(3)) == ["sleep s"]


def test_r08_one_whose_last_gap_was_long_goes_at_once() -> None:
    """Nobody is expected back within the hold."""
    play = Play(model("a"), model("b"))
    play.up("a")
    play.at(20, arrive(1, "a"))
    play.at(21, done(1))
    assert play.at(21.1, arrive(2, "b")) == ["sleep a"]


@pytest.mark.parametrize(
    ("hold_s", "round_trip_s", "goes_at"), [(10, 8, 29), (3, 8, 24), (10, 2, 23)]
)
def test_r08_the_hold_is_the_round_trip_and_ten_seconds_at_most(
    hold_s: float, round_trip_s: float, goes_at: float
) -> None:
    """Who came back after a second is expected for as long as a swap would cost."""
    settings: dict[str, Any] = {"round_trip_s": round_trip_s, "min_awake_s": 999}
    play = Play(model("a", **settings), model("b"), hold_s=hold_s)
    play.up("a", at=19)
    play.at(20, arrive(1, "a"))
    play.at(21, done(1))
    assert play.at(21.1, arrive(2, "b")) == []
    assert play.until(60) == [(goes_at, "sleep a")]


def test_r08_a_model_that_was_never_used_is_judged_the_same_way() -> None:
    """Loaded for somebody who left, it goes for the next."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(1, done(1))
    play.at(2, ready("a"))
    assert play.at(3, arrive(2, "b")) == ["sleep a"]


def long_answer(**settings: Any) -> Play:
    """a has been answering since 0 and can pause; b arrives at 20."""
    play = Play(model("a", can_pause=True, **settings), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(20, arrive(2, "b")) == []
    return play


def test_r10_a_pause_needs_a_long_wait_and_a_whole_slice() -> None:
    """preemptAfter for the one who waits, the time slice for the one who answers."""
    assert long_answer().until(99) == [(35.0, "sleep a")]
    assert long_answer(time_slice_s=70.0).until(99) == [(70.0, "sleep a")]


def test_r10_one_that_cannot_pause_ends_its_answer() -> None:
    """Nothing is ever cut for a swap."""
    play = Play(model("a"), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    assert play.until(500) == []
    assert play.at(501, done(1)) == ["sleep a"]


def test_r10_a_paused_model_pauses_without_waiting_so_long_again() -> None:
    """Its own entry counts as one that has waited; the other's slice is obeyed."""
    play = Play(model("a", can_pause=True), model("b", can_pause=True, time_slice_s=4.0))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    assert play.until(35) == [(35.0, "sleep a")]
    play.at(37, slept("a"))
    assert play.at(40, ready("b")) == ["admit 2"]
    assert play.until(99) == [(44.0, "sleep b")]


def test_r10_an_idle_model_and_a_pause_together() -> None:
    """Where one of them isn't enough."""
    play = Play(model("x", 10, can_pause=True, min_awake_s=999), model("i", 10), model("w"))
    play.at(0, arrive(1, "x"))
    play.at(0, ready("x"))
    play.up("i")
    play.at(20, arrive(2, "w"))
    assert play.until(99) == [(35.0, "sleep i"), (35.0, "sleep x")]


def test_r10_a_deadline_counts_for_one_that_was_idle_a_moment_ago() -> None:
    """It took a ticket in the very walk in which it was held for that; the pause is on time."""
    settings: dict[str, Any] = {"can_pause": True, "min_awake_s": 999, "time_slice_s": 2.0}
    play = Play(model("a", **settings), model("b"))
    play.up("a")
    play.at(1, arrive(1, "a"))
    play.at(10, arrive(2, "b"))
    assert play.at(24, done(1)) == []
    assert play.at(24.5, arrive(3, "a")) == ["admit 3"]
    assert play.until(31) == [(25.0, "sleep a")]


def test_r10_one_that_could_not_go_to_sleep_is_not_even_closed() -> None:
    """Its tier is full of paused answers: it goes on taking tickets until minAwake."""
    play = Play(
        model("a", can_pause=True),
        model("b", can_pause=True, min_awake_s=999, time_slice_s=1.0),
        model("c"),
        ram=20,
    )
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    assert play.until(35) == [(35.0, "sleep a")]
    play.at(36, slept("a"))
    play.at(37, ready("b"))
    play.at(38, arrive(3, "c"))
    assert play.at(80, arrive(4, "b")) == ["admit 4"]


def test_r10_all_paused_answers_go_on() -> None:
    """They aren't admitted twice, and end as they would have."""
    play = Play(model("a", can_pause=True), model("b"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, arrive(2, "a"))
    play.at(20, arrive(3, "b"))
    play.until(35)
    play.at(37, slept("a"))
    play.at(38, ready("b"))
    play.at(39, done(3))
    play.at(40, slept("b"))
    assert play.at(41, woken("a")) == []
    assert play.scheduler.view("a").in_flight == 2
    assert play.at(42, done(1)) == []
    assert play.at(43, done(2)) == []
    assert play.scheduler.view("a").in_flight == 0


def test_r10_the_last_client_who_leaves_ends_the_pause() -> None:
    """Nobody waits in the middle of an answer any more: the model isn't woken for it."""
    play = long_answer()
    play.until(35)
    play.at(37, slept("a"))
    play.at(38, ready("b"))
    play.at(39, done(1))
    assert play.at(40, done(2)) == []
    assert play.until(999) == []
