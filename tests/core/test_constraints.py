"""Groups: who may be awake beside whom."""

from __future__ import annotations

import pytest
from msgspec import structs

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import GroupConfig, MatrixConfig
from llmsnap.core.constraints import Free, GroupRules, constraints_for
from tests.core.play import Play, arrive, done, exited, model, ready, slept


def group(
    *members: str, swap: bool = True, exclusive: bool = True, persistent: bool = False
) -> GroupConfig:
    """One entry under `groups:`."""
    return GroupConfig(swap=swap, exclusive=exclusive, persistent=persistent, members=members)


TABLE = {
    "both in a swap group": ("a", "b", [group("a", "b")], True),
    "same group, swap off": ("a", "b", [group("a", "b", swap=False)], False),
    "target's group is exclusive": ("a", "c", [group("a"), group("c")], True),
    "running one is persistent": ("a", "c", [group("a", persistent=True), group("c")], False),
    "target's group is not exclusive": ("a", "d", [group("a"), group("d", exclusive=False)], False),
    "the other way round": ("d", "a", [group("d", exclusive=False), group("a")], True),
}


@pytest.mark.parametrize(("running", "target", "groups", "evicts"), TABLE.values(), ids=TABLE)
def test_group_table(running: str, target: str, groups: list[GroupConfig], evicts: bool) -> None:
    """The policy of llama-swap, the asymmetric row included."""
    rules = GroupRules.from_config({f"g{i}": g for i, g in enumerate(groups)}, [])
    assert rules.forced_out(target, [running]) == ({running} if evicts else set())


def test_a_pinned_model_is_outside_of_the_groups() -> None:
    """It is never forced out, and forces nobody out: it doesn't take the one place."""
    rules = GroupRules.from_config({"g": group("a", "b", "p")}, ["p"])
    assert rules.forced_out("a", ["b", "p"]) == {"b"}
    assert rules.forced_out("p", ["a", "b"]) == set()


def test_equal_groups_are_still_two() -> None:
    """Membership counts, not what a group looks like."""
    same = group("a", swap=False, exclusive=False)
    rules = GroupRules.from_config({"one": same, "two": group("b")}, [])
    assert rules.forced_out("b", ["a"]) == {"a"}
    assert rules.forced_out("a", ["b"]) == set()


def test_a_model_in_no_group_is_free() -> None:
    """It forces nobody out and is left alone."""
    rules = GroupRules.from_config({"g": group("a")}, [])
    assert rules.forced_out("x", ["a"]) == set()
    assert rules.forced_out("a", ["x"]) == set()


def config(*names: str, groups: dict[str, GroupConfig]) -> Config:
    """A file with some models."""
    models = {name: ModelConfig(cmd="x", pinned=name == "p") for name in names}
    return Config(models=models, groups=groups)


@pytest.mark.parametrize("written", [True, False])
def test_without_capacities_it_is_one_at_a_time(written: bool) -> None:
    """The automatic group of swap and exclusive decides, and pinned models stand beside."""
    groups = {"(default)": group("a", "b", "p")} if written else {}
    rules = constraints_for(config("a", "b", "p", groups=groups), counted=False)
    assert rules.forced_out("a", ["b", "p"]) == {"b"}


def test_written_groups_count_beside_memory_and_the_automatic_one_with_them() -> None:
    """As in llama-swap, where models of no group are in that one."""
    groups = {"(default)": group("x", "y"), "g": group("a", "b")}
    rules = constraints_for(config("a", "b", "x", "y", groups=groups), counted=True)
    assert rules.forced_out("a", ["b", "x"]) == {"b", "x"}
    assert rules.forced_out("x", ["y", "a"]) == {"y", "a"}


def test_with_capacities_and_no_groups_everybody_is_free() -> None:
    """Memory alone decides."""
    groups = {"(default)": group("a", "b")}
    rules = constraints_for(config("a", "b", groups=groups), counted=True)
    assert isinstance(rules, Free)
    assert rules.forced_out("a", ["b"]) == set()


def test_a_matrix_takes_the_place_of_groups() -> None:
    """Its combinations decide, with memory and without."""
    for counted in (True, False):
        plain = config("a", "b", "c", groups={"(default)": group("a", "b", "c")})
        matrix = MatrixConfig(vars={"x": "a"}, sets={"s": "x & b", "t": "c"})
        rules = constraints_for(structs.replace(plain, matrix=matrix), counted=counted)
        assert rules.forced_out("a", ["b"]) == set()
        assert rules.forced_out("a", ["b", "c"]) == {"c"}


def one_at_a_time(*names: str) -> Play:
    """Models without sizes in one swap group."""
    rules = GroupRules.from_config({"g": group(*names)}, [])
    models = [model(name, 0, can_sleep=False) for name in names]
    return Play(*models, constraints=rules)


def test_r06a_one_that_must_go_counts_until_it_is_gone() -> None:
    """The other isn't started before the exit, and a busy one finishes its answer."""
    play = one_at_a_time("a", "b")
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    assert play.at(1, arrive(2, "b")) == []
    assert play.at(3, done(1)) == ["stop a"]
    assert play.at(4, exited("a")) == ["start b"]


def test_r06a_a_flood_is_closed_by_the_same_rules() -> None:
    """Fair after 5 s and awake for 16: then it takes no younger tickets, and drains."""
    play = one_at_a_time("a", "b")
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(90, arrive(2, "b"))
    assert play.at(94, arrive(3, "a")) == ["admit 3"]
    assert play.at(96, arrive(4, "a")) == []
    assert play.at(97, done(1)) == []
    assert play.at(98, done(3)) == ["stop a"]
    assert play.at(99, exited("a")) == ["start b"]
    assert play.at(100, ready("b")) == ["admit 2"]


def test_r06a_one_on_its_way_up_serves_first() -> None:
    """A conflicting model that is starting is waited for, and isn't a victim before it served."""
    play = one_at_a_time("a", "b")
    play.at(0, arrive(1, "a"))
    assert play.at(1, arrive(2, "b")) == []
    assert play.at(20, ready("a")) == ["admit 1"]
    assert play.at(21, done(1)) == ["stop a"]


@pytest.mark.parametrize(("arrival", "orders"), [(3, ["start s"]), (7, [])])
def test_r06a_a_claim_while_groups_make_it_wait(arrival: float, orders: list[str]) -> None:
    """It waits for one that is starting: only when it is fair, its memory is kept for it."""
    rules = GroupRules.from_config({"g": group("x", "w")}, [])
    play = Play(model("x", 4), model("w", 20), model("s", 10), constraints=rules)
    play.at(0, arrive(1, "x"))
    play.at(1, arrive(2, "w"))
    assert play.at(arrival, arrive(3, "s")) == orders


def test_r06a_who_came_first_goes_first() -> None:
    """A younger ticket of a third model doesn't slip in while the older one waits for a drain."""
    rules = GroupRules.from_config(
        {
            "wide": group("w"),
            "one": group("a", exclusive=False),
            "two": group("c", exclusive=False),
        },
        [],
    )
    play = Play(*(model(name, 0) for name in "acw"), constraints=rules)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(90, arrive(2, "w"))
    assert play.until(95) == []
    assert play.at(96, arrive(3, "c")) == []
    play.at(96, done(2))
    assert play.state("c") == "starting"


def test_r06a_who_is_asleep_is_in_nobodys_way() -> None:
    """Only models that are awake, or on their way, exclude each other."""
    rules = GroupRules.from_config({"g": group("a", "b")}, [])
    play = Play(model("a", 4), model("b", 4), constraints=rules)
    play.up("a")
    assert play.at(1, arrive(1, "b")) == ["sleep a"]
    assert play.at(3, slept("a")) == ["start b"]
    assert play.at(4, ready("b")) == ["admit 1"]
