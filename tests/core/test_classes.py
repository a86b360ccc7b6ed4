"""R7: helpers, which put nobody out who is in use."""

from __future__ import annotations

from typing import Any

from llmsnap.core.constraints import GroupRules
from llmsnap.core.messages import Event, RequestArrived
from tests.core.play import Play, arrive, done, model, ready, slept, woken
from tests.core.test_constraints import group


def helps(ticket: int, name: str) -> Event:
    """A client asks for a model, and says that it is a helper."""
    return RequestArrived(ticket, name, is_helper=True)


def with_main(**more: Any) -> Play:
    """A main model `a` that was used last at 100, and a helper `h` of the same size."""
    play = Play(model("a", min_awake_s=30.0), model("h", is_helper=True), model("b"), **more)
    play.up("a")
    play.at(90, arrive(1, "a"))
    play.at(100, done(1))
    return play


def test_a_helper_waits_until_the_main_model_is_out_of_use() -> None:
    """For `minAwake` after its last use, however long the helper has waited."""
    play = with_main()
    assert play.at(101, arrive(2, "h")) == []
    assert play.until(129) == []
    assert play.until(130) == [(130.0, "sleep a")]
    assert play.at(131, slept("a")) == ["start h"]
    assert play.at(132, ready("h")) == ["admit 2"]


def test_each_use_lets_it_wait_anew() -> None:
    """A main model is closed to nobody on a helper's account."""
    play = with_main()
    play.at(101, arrive(2, "h"))
    assert play.at(125, arrive(3, "a")) == ["admit 3"]
    assert play.at(140, done(3)) == []
    assert play.until(169) == []
    assert play.until(170) == [(170.0, "sleep a")]


def test_a_main_model_never_waits_for_a_helpers_sake() -> None:
    """What the helper has waited for isn't kept for it, and it is put out at once."""
    play = with_main()
    play.at(101, arrive(2, "h"))
    assert play.at(110, arrive(3, "b")) == ["sleep a"]
    assert play.at(111, slept("a")) == ["start b"]
    play.at(112, ready("b"))
    play.at(113, done(3))
    play.at(113, done(2))
    play = with_main()
    play.until(129)
    play.at(131, arrive(2, "h"))
    play.at(132, slept("a"))
    play.at(133, ready("h"))
    play.at(134, done(2))
    assert play.at(200, arrive(3, "a")) == ["sleep h"]
    assert play.at(201, slept("h")) == ["wake a"]
    assert play.at(202, woken("a")) == ["admit 3"]


def test_a_helper_runs_beside_main_models_where_it_fits() -> None:
    """There is nothing to wait for."""
    play = Play(model("a"), model("h", 4, is_helper=True))
    play.up("a")
    assert play.at(1, arrive(1, "h")) == ["start h"]


def test_helpers_put_each_other_out() -> None:
    """By the rules for everybody."""
    play = Play(model("h", is_helper=True), model("i", is_helper=True))
    play.up("h")
    assert play.at(60, arrive(1, "i")) == ["sleep h"]


def test_a_request_may_say_what_it_is() -> None:
    """A helper's request for a main model waits; a main one for a helper's doesn't."""
    play = with_main()
    assert play.at(101, helps(2, "b")) == []
    assert play.at(102, RequestArrived(3, "h", is_helper=False)) == ["sleep a"]


def test_a_main_request_isnt_held_up_by_a_helpers_for_the_same_model() -> None:
    """The younger one does what the older one may not, and both are served."""
    play = with_main()
    play.at(101, helps(2, "b"))
    assert play.at(102, arrive(3, "b")) == ["sleep a"]
    assert play.at(103, slept("a")) == ["start b"]
    assert play.at(104, ready("b")) == ["admit 2", "admit 3"]


def test_groups_dont_make_a_helper_stronger() -> None:
    """Whoever they want gone is left alone as long as it is in use."""
    rules = GroupRules.from_config({"g": group("a", "h")}, [])
    play = with_main(room=100, constraints=rules)
    assert play.at(101, arrive(2, "h")) == []
    assert play.until(130) == [(130.0, "sleep a")]


def test_what_a_timer_moves_is_seen_at_once() -> None:
    """A helper held back by a main model goes on in the moment in which that one goes to sleep."""
    main = model("a", 8, min_awake_s=60.0, sleep_after_s=20.0)
    idle = model("b", 16, min_awake_s=0.0, is_helper=True)
    play = Play(main, idle, model("h", 20, is_helper=True))
    play.up("b")
    play.up("a", at=100)
    assert play.at(110, arrive(2, "h")) == []
    assert play.until(120) == [(120.0, "sleep a"), (120.0, "sleep b")]
