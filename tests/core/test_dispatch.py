"""R5, R6: the walk over the queue."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import NeedChanged
from tests.core.play import (
    GIB,
    Play,
    arrive,
    done,
    exited,
    foreign,
    model,
    oom,
    ready,
    slept,
    unload,
    woken,
)


def busy(*names: str, size: float = 20, **more: Any) -> Play:
    """Some models, of which the first has been serving ticket 1 since 0."""
    play = Play(*(model(name, size, **more) for name in names))
    play.at(0, arrive(1, names[0]))
    play.at(0, ready(names[0]))
    return play


def test_r05a_a_model_that_is_up_takes_what_comes() -> None:
    """However many there are, and whoever else waits, as long as nobody closed it."""
    play = busy("a", "b")
    play.at(1, arrive(2, "b"))
    assert [play.at(2, arrive(n, "a")) for n in range(3, 20)] == [
        [f"admit {n}"] for n in range(3, 20)
    ]


def test_r05b_nobody_waits_longer_than_max_wait() -> None:
    """503, and it says who stood in the way."""
    play = busy("a", "b", min_awake_s=9999)
    play.at(50, arrive(2, "b"))
    assert play.until(649) == []
    assert play.until(651) == [(650.0, "reject 2: WaitedTooLong")]
    assert play.error().message == (
        "'b' wasn't available within 600 s (schedule.maxWait): 'a' was serving 1 request"
    )
    assert play.error().retry_after_s is not None


def test_r05b_a_closed_model_has_the_same_limit() -> None:
    """Its tickets wait for the older one's turn, and not for ever."""
    play = busy("a", "b")
    play.at(50, arrive(2, "b"))
    play.at(60, arrive(3, "a"))
    assert play.until(700) == [(650.0, "reject 2: WaitedTooLong"), (650.0, "admit 3")]


def test_r05b_zero_is_no_limit() -> None:
    """`maxWait: 0` waits for ever."""
    play = Play(model("a", min_awake_s=9999), model("b"), max_wait_s=0)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, arrive(2, "b"))
    assert play.until(9000) == []


def test_r05b_a_paused_answer_has_no_limit() -> None:
    """It was being served already."""
    play = Play(model("a", can_pause=True), model("b", min_awake_s=99999), max_wait_s=60)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    assert play.until(36) == [(35.0, "sleep a")]
    play.at(37, slept("a"))
    assert play.at(40, ready("b")) == ["admit 2"]
    assert play.until(9000) == []
    assert play.scheduler.view("a").paused == 1


@pytest.mark.parametrize(("arrival", "orders"), [(5, []), (7, ["stop v"])])
def test_r05d_who_comes_back_from_a_stop_claims_when_it_is_fair(
    arrival: float, orders: list[str]
) -> None:
    """Then a younger one doesn't count on the memory that it leaves, and makes room elsewhere."""
    play = Play(model("a", 12), *(model(name, 12, can_sleep=False) for name in "vw"))
    play.up("v")
    play.up("a")
    play.at(0, unload("a"))
    play.at(1, arrive(1, "a"))
    assert play.at(arrival, arrive(2, "w")) == orders


def test_r06b_loads_when_all_devices_are_free() -> None:
    """All or none: one device that is still held keeps it from the other too."""
    play = Play(
        model("w", 20, on="gpu0+gpu1"),
        model("a"),
        model("b", on="gpu1"),
        model("s", 4),
        room={"gpu0": 24, "gpu1": 24},
    )
    play.up("a")
    play.up("b")
    assert play.at(20, arrive(1, "w")) == ["sleep a", "sleep b"]
    assert play.at(21, slept("a")) == []
    assert play.at(22, slept("b")) == ["start w"]


def test_r06b_one_of_unknown_size_loads_alone() -> None:
    """All but pinned models go first, and nobody comes beside it."""
    play = Play(model("u", None), model("p", 2, pinned=True), model("s", 1))
    play.at(0, arrive(8, "p"))
    play.at(0, ready("p"))
    play.at(0, done(8))
    play.up("s")
    assert play.at(20, arrive(1, "u")) == ["sleep s"]
    assert play.at(21, slept("s")) == ["start u"]
    assert play.at(22, arrive(2, "s")) == []
    assert play.at(23, ready("u")) == ["admit 1"]
    assert play.at(24, done(1)) == ["sleep u"]
    assert play.at(25, slept("u")) == ["wake s"]


def test_r06b_foreign_use_does_not_keep_one_of_unknown_size_out() -> None:
    """Nobody knows how much it needs, so nobody can say that it doesn't fit."""
    play = Play(model("u", None))
    play.at(0, foreign("gpu0", 20))
    assert play.at(1, arrive(1, "u")) == ["start u"]


def test_r06c_what_is_on_its_way_out_is_waited_for_not_evicted_for_twice() -> None:
    """The second who waits for the same memory finds nothing short, and takes no victim."""
    play = Play(model("a", 12), model("b", 12), model("c", 12))
    play.up("a")
    play.up("b", at=1)
    assert play.at(20, arrive(1, "c")) == ["sleep a"]
    assert play.at(21, arrive(2, "c")) == []
    assert play.state("b") is State.READY


def test_r06d_a_need_that_was_learned_too_large_is_refused() -> None:
    """It was servable on arrival; a pinned model's growth made it impossible for ever."""
    play = Play(model("p", 2, pinned=True), model("b"), model("a", 10))
    play.at(0, arrive(1, "p"))
    play.at(0, ready("p"))
    play.at(0, arrive(2, "a"))
    play.at(0, ready("a"))
    assert play.at(1, arrive(3, "b")) == []
    assert play.at(2, NeedChanged("p", {"gpu0": 6 * GIB})) == ["reject 3: DoesNotFit"]


def test_r06d_a_paused_answer_that_can_never_go_on_ends() -> None:
    """502, and its process is stopped."""
    play = Play(model("a", can_pause=True), model("b"), model("p", 2, pinned=True))
    play.at(0, ready("p"))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(20, arrive(2, "b"))
    play.until(35)
    play.at(36, slept("a"))
    play.at(37, NeedChanged("a", {"gpu0": 23 * GIB}))
    assert play.state("a") is State.STOPPING


def test_r06e_claims_are_kept_against_the_younger() -> None:
    """Once it is fair, what it waits for isn't taken by a small one that would fit now."""
    play = busy("a", "b", "s", size=12, min_awake_s=999)
    play.at(20, arrive(2, "b"))
    play.at(20, ready("b"))
    assert play.at(21, arrive(3, "s")) == []
    assert play.until(26) == []  # fair: claims 12 of the 24
    play.at(30, done(1))
    assert play.state("a") is State.SLEEPING


def test_r06e_a_small_one_does_not_overtake_for_ever() -> None:
    """A big one waits behind six small ones that are always busy, and gets its turn (F5)."""
    smalls = [f"s{i}" for i in range(3)]
    play = Play(model("big", 22), *(model(name, 7) for name in smalls))
    for i, name in enumerate(smalls):
        play.at(0, arrive(i, name))
        play.at(0, ready(name))
    play.at(50, arrive(10, "big"))
    assert play.until(55) == []
    for i, name in enumerate(smalls):
        assert play.at(56, arrive(20 + i, name)) == []
    assert [play.at(57, done(i)) for i in range(3)] == [["sleep s0"], ["sleep s1"], ["sleep s2"]]
    assert [play.at(60, slept(name)) for name in smalls] == [[], [], ["start big"]]


def test_r06e_one_who_was_in_the_way_of_an_older_claim_only() -> None:
    """When its victims are all on their way out, and it fits beside them, it needn't wait."""
    play = Play(
        model("w", 4, on="gpu0+gpu1"),
        model("x", 22, on="gpu1", min_awake_s=999),
        model("y", 10),
        model("z", 12),
        room={"gpu0": 24, "gpu1": 24},
    )
    play.at(0, arrive(1, "x"))
    play.at(0, ready("x"))
    play.up("y")
    play.at(20, arrive(2, "w"))
    assert play.until(25) == []  # w is fair, and claims 4 on gpu0
    assert play.at(26, arrive(3, "z")) == ["sleep y", "start z"]


def test_r06e_no_younger_one_takes_what_an_older_one_claims() -> None:
    """It would fit now; but its victim still answers, and what it frees is for the older claim."""
    play = Play(
        model("w", 4, on="gpu0+gpu1"),
        model("x", 22, on="gpu1", min_awake_s=999),
        model("y", 10),
        model("z", 12),
        room={"gpu0": 24, "gpu1": 24},
    )
    for ticket, name in ((1, "x"), (2, "y")):
        play.at(0, arrive(ticket, name))
        play.at(0, ready(name))
    play.at(20, arrive(3, "w"))
    play.at(26, arrive(4, "z"))
    assert play.until(35) == []
    assert play.at(36, done(2)) == ["sleep y", "start z"]


def test_r05_what_is_closed_for_one_is_no_victim_for_the_next() -> None:
    """Its memory is promised already: the younger one has to find somebody else."""
    play = Play(*(model(name, 10) for name in ("x", "y", "v", "w")))
    for ticket, name in ((1, "x"), (2, "y")):
        play.at(0, arrive(ticket, name))
        play.at(ticket, ready(name))
    play.at(50, arrive(3, "v"))
    play.at(50, arrive(4, "w"))
    assert play.until(55) == []
    assert play.at(56, arrive(5, "x")) == []
    assert play.at(56, arrive(6, "y")) == []


@pytest.mark.parametrize("gone", ["left", "unloaded"])
def test_r05_plans_are_not_kept(gone: str) -> None:
    """When the waiter is gone, nothing that was closed for it stays closed."""
    play = busy("a", "b")
    play.at(50, arrive(2, "b"))
    assert play.at(56, arrive(3, "a")) == []
    orders = play.at(57, done(2) if gone == "left" else unload("b"))
    assert "admit 3" in orders


def test_r05_an_oom_retry_keeps_its_place() -> None:
    """It is older than the others, also after the failure."""
    play = Play(model("a", 14), model("b", 14))
    play.at(0, arrive(1, "a"))
    play.at(1, arrive(2, "b"))
    assert play.at(2, oom("a")) == ["start a"]
    assert play.at(3, ready("a", 2)) == ["admit 1"]
    assert play.at(4, done(1)) == ["sleep a"]
    assert play.at(5, exited("a", 2)) == ["start b"]
    assert play.at(6, woken("b")) == []


def test_r01_a_head_start_counts_as_waiting() -> None:
    """Who has one goes before those who came a little earlier, and is fair the sooner."""
    play = Play(model("a"), model("b"), model("c", head_start_s=10.0))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(90, arrive(2, "b"))
    play.at(93, arrive(3, "c"))
    assert play.at(94, done(1)) == ["sleep a"]
    assert play.at(95, slept("a")) == ["start c"]


def test_r01_a_head_start_doesnt_last_for_ever() -> None:
    """Who came before it by more than that stays before it, so that every wait has an end."""
    play = Play(model("a"), model("b"), model("c", head_start_s=10.0))
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(80, arrive(2, "b"))
    play.until(92)
    play.at(93, arrive(3, "c"))
    assert play.at(94, done(1)) == ["sleep a"]
    assert play.at(95, slept("a")) == ["start b"]


def test_r05_the_longest_wait_counts_from_the_arrival() -> None:
    """Whatever head start it has, also a negative one."""
    for head_start_s in (50.0, -50.0):
        play = Play(model("a"), model("b", head_start_s=head_start_s), max_wait_s=30.0)
        play.at(0, arrive(1, "a"))
        play.at(0, ready("a"))
        play.at(0, arrive(2, "b"))
        orders = play.until(31)
        assert [at for at, order in orders if order.startswith("reject 2")] == [30.0]
