"""What fits, what is short, who makes room."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from llmsnap.core.placement import Share, covers, fits, pick_victims, shortage


def share(name: str, amount: int = 10, *, alone: bool = False, pinned: bool = False) -> Share:
    """A share of one device."""
    return Share(name, {"gpu0": amount}, alone, pinned)


ROOM = {"gpu0": 24, "gpu1": 24}


def test_short_is_what_is_missing_beside_those_who_stay_and_those_who_claim() -> None:
    """Need, claims and neighbours together, less the room."""
    assert shortage(share("w"), [share("a")], {}, ROOM) == {}
    assert shortage(share("w"), [share("a")], {"gpu0": 6}, ROOM) == {"gpu0": 2}
    assert shortage(share("w"), [share("a"), share("b")], {}, ROOM) == {"gpu0": 6}


def test_only_its_own_devices_count() -> None:
    """What others hold elsewhere is none of its business."""
    wide = Share("w", {"gpu0": 10, "gpu1": 20})
    other = Share("a", {"gpu1": 10, "gpu2": 99})
    assert shortage(wide, [other], {"gpu2": 99}, ROOM) == {"gpu1": 6}


def test_one_of_unknown_size_is_short_of_all_that_is_not_pinned() -> None:
    """It shares its devices with pinned models only, whatever the numbers say."""
    alone = share("w", 20, alone=True)
    stay = [share("p", 4, pinned=True), share("a", 3)]
    assert shortage(alone, stay, {"gpu0": 2}, ROOM) == {"gpu0": 5}
    assert shortage(alone, stay[:1], {}, ROOM) == {}
    assert not fits(alone, stay, ROOM)
    assert fits(alone, stay[:1], ROOM)


def test_nothing_but_pinned_models_loads_beside_one_of_unknown_size() -> None:
    """For anybody else it must go as a whole."""
    alone = share("a", 20, alone=True)
    assert shortage(share("w", 1), [alone], {}, ROOM) == {"gpu0": 20}
    assert not fits(share("w", 1), [alone], ROOM)
    assert shortage(share("p", 4, pinned=True), [alone], {}, ROOM) == {}
    assert fits(share("p", 4, pinned=True), [alone], ROOM)


def test_fits_to_the_last_byte() -> None:
    """Equal is enough, one more isn't."""
    assert fits(share("w", 14), [share("a")], ROOM)
    assert not fits(share("w", 15), [share("a")], ROOM)


def test_the_cheapest_go_first_and_nobody_for_nothing() -> None:
    """Grown from the cheap end, then pruned from the dear one."""
    small, big = share("small", 4), share("big", 20)
    assert pick_victims([small, big], {"gpu0": 3}) == [small]
    assert pick_victims([small, big], {"gpu0": 20}) == [big]
    assert pick_victims([small, big], {"gpu0": 21}) == [small, big]
    assert pick_victims([small, big], {"gpu0": 25}) is None
    assert pick_victims([], {}) == []


amounts = st.dictionaries(st.sampled_from(["gpu0", "gpu1", "host"]), st.integers(0, 20))


@settings(max_examples=300)
@given(st.lists(amounts, max_size=7), amounts)
def test_a_chosen_set_covers_and_is_minimal(
    sizes: list[dict[str, int]], short: dict[str, int]
) -> None:
    """Whatever is short: the set covers it, and without any one of its members it wouldn't."""
    ranked = [Share(f"m{i}", size) for i, size in enumerate(sizes)]
    chosen = pick_victims(ranked, short)
    if chosen is None:
        assert not covers(ranked, short)
        return
    assert covers(chosen, short)
    for spared in chosen:
        assert not covers([s for s in chosen if s is not spared], short)
