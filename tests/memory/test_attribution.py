"""Whose the memory is, look after look."""

from __future__ import annotations

from llmsnap.memory.attribution import Attributed, Attribution, Whereabouts, need_of
from tests.memory.looks import GIB, in_gib, look, reading, tree


def where(*, up: str = "", coming: str = "", leaving: str = "") -> Whereabouts:
    """Where models are; names with blanks between them."""
    return Whereabouts(
        up=frozenset(up.split()),
        coming=frozenset(coming.split()),
        leaving=frozenset(leaving.split()),
    )


def held(attributed: Attributed, model: str) -> dict[str, float]:
    """What a model holds, in GiB."""
    return in_gib(attributed.held[model])


def test_bytes_by_process_are_summed_over_a_models_tree() -> None:
    """Two of three listed processes are the model's; the third is another program's."""
    seen = look(
        reading("gpu0", 12, processes={10: 7, 11: 1, 99: 3}),
        a=tree(10, 11, anonymous=0.5),
    )
    found = Attribution().of(seen, where(up="a"))
    assert held(found, "a") == {"host": 0.5, "gpu0": 8}
    assert in_gib(found.others) == {"gpu0": 4}


def test_a_model_that_sleeps_is_not_on_its_devices() -> None:
    """What it still holds of a GPU keeps others out, as any program's memory does."""
    seen = look(reading("gpu0", 1, processes={10: 0.6}), a=tree(10))
    found = Attribution().of(seen, where())
    assert held(found, "a") == {"gpu0": 0.6}
    assert in_gib(found.others) == {"gpu0": 1}


def test_of_ram_others_have_what_is_not_ours() -> None:
    """Pages of files count as available, so only a model's own pages are taken off."""
    seen = look(reading("host", 10), a=tree(10, anonymous=2, file=3), b=tree(20, anonymous=1))
    found = Attribution().of(seen, where(up="a"))
    assert held(found, "a") == {"host": 5}
    assert in_gib(found.others) == {"host": 8}


def test_swap_is_shown_and_is_no_device() -> None:
    """It is where a model's bytes may be, too."""
    seen = look(reading("swap", 3), a=tree(10, anonymous=0.5, swap=2))
    found = Attribution().of(seen, where())
    assert held(found, "a") == {"host": 0.5, "swap": 2}
    assert found.others == {}


def test_without_bytes_by_process_the_difference_around_a_start_is_taken() -> None:
    """What was used when the model began to load, against what is used when it is up."""
    attribution = Attribution()
    attribution.of(look(reading("gpu0", 2)), where())
    found = attribution.of(look(reading("gpu0", 2.5), a=tree(10)), where(coming="a"))
    assert held(found, "a") == {}
    found = attribution.of(look(reading("gpu0", 10), a=tree(10)), where(up="a"))
    assert held(found, "a") == {"gpu0": 8}
    assert in_gib(found.others) == {"gpu0": 2}
    assert found.unclear == frozenset()


def test_a_start_between_two_looks_is_measured_against_the_look_before() -> None:
    """A small model may be up before anybody has looked."""
    attribution = Attribution()
    attribution.of(look(reading("gpu0", 2)), where())
    found = attribution.of(look(reading("gpu0", 5), a=tree(10)), where(up="a"))
    assert held(found, "a") == {"gpu0": 3}


def test_a_driver_that_listed_nobody_may_be_silent_of_those_who_come() -> None:
    """Only when somebody is there it shows that it doesn't tell bytes."""
    attribution = Attribution()
    attribution.of(look(reading("gpu0", 2, processes={})), where())
    found = attribution.of(look(reading("gpu0", 5), a=tree(10)), where(up="a"))
    assert held(found, "a") == {"gpu0": 3}


def test_a_driver_that_falls_silent_has_told_before() -> None:
    """What it said of a model stands, whatever the difference around its start was."""
    attribution = Attribution()
    attribution.of(look(reading("gpu0", 2, processes={})), where())
    told = reading("gpu0", 9, processes={10: 3, 99: 4})
    attribution.of(look(told, a=tree(10)), where(up="a"))
    found = attribution.of(look(reading("gpu0", 9), a=tree(10)), where(up="a"))
    assert held(found, "a") == {"gpu0": 3}
    assert found.unclear == frozenset()


def test_two_that_came_between_two_looks_are_not_told_apart() -> None:
    """Nor is one beside another that moves."""
    attribution = Attribution()
    attribution.of(look(reading("gpu0", 2)), where())
    found = attribution.of(look(reading("gpu0", 9), a=tree(10), b=tree(20)), where(up="a b"))
    assert found.unclear == {"a", "b"}


def test_while_something_moves_others_are_left_as_they_were() -> None:
    """A difference says nothing then."""
    attribution = Attribution()
    attribution.of(look(reading("gpu0", 2)), where())
    found = attribution.of(look(reading("gpu0", 6), a=tree(10)), where(coming="a"))
    assert in_gib(found.others) == {"gpu0": 2}


def test_of_two_that_came_at_once_it_is_not_known_who_took_what() -> None:
    """Neither is learned from; each is thought to hold what it needs, the rest is others'."""
    attribution = Attribution()
    needs = {"a": {"gpu0": 5 * GIB}, "b": {"gpu0": 2 * GIB}}
    attribution.of(look(reading("gpu0", 1)), where(coming="a b"), needs)
    seen = look(reading("gpu0", 9), a=tree(10), b=tree(20))
    found = attribution.of(seen, where(up="a b"), needs)
    assert found.unclear == {"a", "b"}
    assert held(found, "a") == {"gpu0": 5}
    assert in_gib(found.others) == {"gpu0": 2}


def test_what_is_known_of_a_difference_ends_with_the_sleep() -> None:
    """The next wake is measured anew."""
    attribution = Attribution()
    attribution.of(look(reading("gpu0", 1)), where(coming="a"))
    attribution.of(look(reading("gpu0", 5), a=tree(10)), where(up="a"))
    found = attribution.of(look(reading("gpu0", 1), a=tree(10)), where())
    assert held(found, "a") == {}
    attribution.of(look(reading("gpu0", 2), a=tree(10)), where(coming="a"))
    found = attribution.of(look(reading("gpu0", 8), a=tree(10)), where(up="a"))
    assert held(found, "a") == {"gpu0": 7}


def test_old_news_and_lost_gpus_change_nothing() -> None:
    """The last figures stand until there are new ones."""
    attribution = Attribution()
    attribution.of(look(reading("gpu0", 5, processes={})), where())
    stale = attribution.of(look(reading("gpu0", 9, processes={}), stale="gpu0"), where())
    lost = attribution.of(look(), where())
    assert in_gib(stale.others) == in_gib(lost.others) == {"gpu0": 5}


def test_need_in_ram_is_all_that_a_model_has_there() -> None:
    """Pages of its file included: it would be slow without them."""
    one = tree(10, anonymous=1, file=2)
    assert need_of({"host": 3 * GIB, "swap": 1}, one.usage) == {"host": 3 * GIB}


def test_need_in_ram_beside_a_gpu_is_what_nobody_else_could_have() -> None:
    """The file was read into the GPU, and its pages are free as soon as they are wanted."""
    one = tree(10, anonymous=1, file=8)
    need = need_of({"host": 9 * GIB, "gpu0": 8 * GIB}, one.usage)
    assert need == {"gpu0": 8 * GIB, "host": GIB}
