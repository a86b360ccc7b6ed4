"""The memory books."""

from __future__ import annotations

from typing import Any

from llmsnap.core.ledger import Ledger
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelSpec
from llmsnap.core.pace import Pace
from llmsnap.core.slot import Slot
from tests.core.play import GIB, model


def slot(name: str, size: float | None = 20, state: State = State.STOPPED, **more: Any) -> Slot:
    """A model in some state, holding what that means."""
    return placed(model(name, size, **more), state)


def placed(spec: ModelSpec, state: State) -> Slot:
    """A slot for `spec`."""
    one = Slot(spec, spec.need, spec.estimate, Pace(8.0), state=state)
    one.tier_held = (spec.tier, spec.tier_bytes)
    return one


def books(*slots: Slot, room: int = 24, ram: int = 40) -> Ledger:
    """Books over one card and one tier."""
    ledger = Ledger(slots, {"gpu0": room * GIB}, {"ram": ram * GIB})
    for one in slots:
        one.share = ledger.share_of(one)
    return ledger


def test_held_is_what_is_there_and_staying_what_will_be() -> None:
    """Who leaves is still held, and doesn't stay; who is asleep is neither."""
    slots = [slot(state, 1, state) for state in State]
    ledger = books(*slots)
    held = {share.model for share in ledger.held()}
    assert held == {"starting", "ready", "sleeping", "waking"}
    assert {share.model for share in ledger.staying([])} == {"starting", "ready", "waking"}
    closed = [one for one in slots if one.state is State.READY]
    assert {share.model for share in ledger.staying(closed)} == {"starting", "waking"}


def test_foreign_use_takes_from_the_room() -> None:
    """What other programs have isn't ours to give."""
    ledger = books()
    ledger.foreign["gpu0"] = 10 * GIB
    assert ledger.room == {"gpu0": 14 * GIB}


def test_a_declared_need_is_its_share() -> None:
    """Devices without a capacity, and zeros, don't count."""
    spec = ModelSpec(name="a", devices=("gpu0",), need={"gpu0": 5, "host": 0, "gpu7": 9})
    one = placed(spec, State.STOPPED)
    share = books(one).share_of(one)
    assert share.bytes == {"gpu0": 5}
    assert not share.alone


def test_an_unknown_need_is_all_that_pinned_models_leave() -> None:
    """It is for itself alone, on all of its devices."""
    one, pin = slot("a", None), slot("p", 4, pinned=True)
    share = books(one, pin).share_of(one)
    assert share.alone
    assert share.bytes == {"gpu0": 20 * GIB}


def test_one_of_unknown_size_is_in_the_way_even_where_nothing_is_left() -> None:
    """A share of nothing would be overlooked."""
    one, pin = slot("a", None), slot("p", 24, pinned=True)
    assert books(one, pin).share_of(one).bytes == {"gpu0": 1}


def test_an_estimate_counts_as_long_as_it_fits() -> None:
    """Larger than what pinned models and others leave, it proves nothing: it loads alone."""
    one = slot("a", None, estimate={"gpu0": 18 * GIB})
    pin = slot("p", 4, pinned=True)
    ledger = books(one, pin)
    assert ledger.share_of(one).bytes == {"gpu0": 18 * GIB}
    assert not ledger.share_of(one).alone
    ledger.foreign["gpu0"] = 3 * GIB
    assert ledger.share_of(one).alone
    assert ledger.could_fit(one, ledger.share_of(one))


def test_only_what_is_sure_makes_a_model_unservable() -> None:
    """A declared need beside pinned ones, or weights that alone are too much."""
    pin = slot("p", 10, pinned=True)
    big, guessed = slot("b"), slot("g", None, estimate={"gpu0": 99 * GIB})
    weighed = slot("w", None, certain={"gpu0": 25 * GIB})
    ledger = books(pin, big, guessed, weighed)
    assert [s.servable for s in (pin, big, guessed, weighed)] == [True, False, True, False]
    assert ledger.overdrawn(big) == {"gpu0": 6 * GIB}
    assert ledger.overdrawn(weighed) == {"gpu0": 1 * GIB}


def test_foreign_use_never_makes_a_model_unservable() -> None:
    """It can go away again; the model only can't fit now."""
    one = slot("a")
    ledger = books(one)
    ledger.foreign["gpu0"] = 5 * GIB
    ledger.settle()
    assert one.servable
    assert not ledger.could_fit(one, ledger.share_of(one))


def test_growth_is_capped_at_what_pinned_models_leave() -> None:
    """Below that it counts as it is."""
    one, pin = slot("a"), slot("p", 4, pinned=True)
    ledger = books(one, pin)
    assert ledger.capped(one, {"gpu0": 23 * GIB}) == {"gpu0": 20 * GIB}
    assert ledger.capped(one, {"gpu0": 3 * GIB}) == {"gpu0": 3 * GIB}


def test_a_tier_has_books_of_its_own() -> None:
    """Who goes, is, or comes from there is in it; soon, those who leave it aren't."""
    new = slot("new", 10, State.READY)
    ledger = books(
        new,
        slot("asleep", 20, State.ASLEEP),
        slot("waking", 15, State.WAKING),
        slot("ready", 30, State.READY),
    )
    assert ledger.tier_lack("ram", 10 * GIB) == 5 * GIB
    assert ledger.tier_lack("ram", 10 * GIB, soon=True) == -10 * GIB


def test_who_is_paged_out_is_in_both_tiers_until_it_is_there() -> None:
    """Soon it will be in the lower one alone."""
    paging = slot("paging", 20, State.PAGING)
    paging.bound_for = ("swap", 25 * GIB)
    ledger = Ledger([paging], {}, {"ram": 20 * GIB, "swap": 40 * GIB})
    assert ledger.tier_lack("ram", GIB) == GIB
    assert ledger.tier_lack("ram", GIB, soon=True) == -19 * GIB
    assert ledger.tier_lack("swap", GIB) == ledger.tier_lack("swap", GIB, soon=True) == -14 * GIB


def test_a_tier_without_a_budget_has_no_end() -> None:
    """Nobody is kept from a place whose size isn't known."""
    assert books(ram=1).tier_lack("swap", 10 * GIB) < 0
