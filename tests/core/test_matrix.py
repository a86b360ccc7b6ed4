"""The matrix: which models must go before another may load."""

from __future__ import annotations

import random
from itertools import product

import pytest

from llmsnap.config.expressions import Expression, Name, OneOf, Reference, parse
from llmsnap.core.matrix import MatrixRules
from tests.core.play import Play, arrive, done, exited, model, ready

WORKED = {
    "standard": "(g|q|m) & v",
    "with_rerank": "(g|q) & v & e",
    "creative": "(g|q) & sd",
    "full": "L",
}
COSTS = {"v": 50, "L": 30}

EXAMPLES = {
    "nothing runs": ("", "g", ""),
    "g,v: q": ("g v", "q", "g"),
    "g,v: e": ("g v", "e", ""),
    "g,v,e: sd": ("g v e", "sd", "v e"),
    "g,v: L": ("g v", "L", "g v"),
    "L: g": ("L", "g", "L"),
    "g,v,e: m": ("g v e", "m", "g e"),
    "sd,g: v": ("sd g", "v", "sd"),
    "zzz is in no set": ("zzz v", "g", "zzz"),
    "the wanted one is in no set": ("g v", "zzz", "g v"),
}


def rules(sets: dict[str, str], costs: dict[str, int] | None = None, *pinned: str) -> MatrixRules:
    """The policy of some sets, whose names are models."""
    return MatrixRules({name: parse(text) for name, text in sets.items()}, costs or {}, pinned)


@pytest.mark.parametrize(("running", "target", "evicted"), EXAMPLES.values(), ids=EXAMPLES)
def test_worked_examples(running: str, target: str, evicted: str) -> None:
    """What llama-swap's solver answered, case by case."""
    assert rules(WORKED, COSTS).forced_out(target, running.split()) == set(evicted.split())


def test_costs_decide_between_sets() -> None:
    """Whoever costs more to unload stays."""
    sets = {"one": "a & c", "two": "a & b"}

    assert rules(sets, {"b": 10}).forced_out("a", ["b", "c"]) == {"c"}
    assert rules(sets, {"c": 10}).forced_out("a", ["b", "c"]) == {"b"}


def test_of_two_equal_ones_the_earlier_wins() -> None:
    """The order of the file counts, not the names of the sets."""
    assert rules({"s": "a & (b | c)"}).forced_out("a", ["b", "c"]) == {"c"}
    assert rules({"z": "a & c", "b": "a & b"}).forced_out("a", ["b", "c"]) == {"b"}


def test_a_set_may_stand_for_others() -> None:
    """Its combinations are those of the set that is meant."""
    sets = {"small": "b | c", "all": "a & +small & d"}

    assert rules(sets).forced_out("a", ["b", "c", "d"]) == {"c"}


def test_pinned_models_stand_outside() -> None:
    """Nobody forces them out, and they force nobody out."""
    pinned = rules({"s": "a", "t": "b"}, {}, "p")

    assert pinned.forced_out("a", ["b", "p"]) == {"b"}
    assert pinned.forced_out("p", ["a", "b"]) == set()


def test_many_combinations_stay_few() -> None:
    """A set of thousands of millions of combinations is looked through at once."""
    any_of = "(" + "|".join(f"m{n}" for n in range(40)) + ")"
    wide = rules({"s": "&".join([any_of] * 6)})

    assert wide.forced_out("m0", [f"m{n}" for n in range(1, 7)]) == {"m6"}


def everything(expression: Expression, sets: dict[str, Expression]) -> list[frozenset[str]]:
    """Return all combinations, one by one and without any thought."""
    match expression:
        case Name(name):
            return [frozenset({name})]
        case Reference(name):
            return everything(sets[name], sets)
    parts = [everything(part, sets) for part in expression.parts]
    if isinstance(expression, OneOf):
        return [choice for part in parts for choice in part]
    return [frozenset().union(*choices) for choices in product(*parts)]


def random_text(rng: random.Random, depth: int) -> str:
    """Return some expression over the models a to f."""
    if depth == 0 or rng.random() < 0.3:
        return rng.choice("abcdef")
    sign = rng.choice(["&", "|"])
    parts = [random_text(rng, depth - 1) for _ in range(rng.randint(2, 3))]
    return f"({sign.join(parts)})"


@pytest.mark.parametrize("seed", range(60))
def test_no_combination_is_cheaper(seed: int) -> None:
    """Against all of them, looked at one by one."""
    rng = random.Random(seed)
    sets = {f"s{n}": parse(random_text(rng, 3)) for n in range(rng.randint(1, 3))}
    costs = {name: rng.randint(1, 4) for name in "abcdef"}
    for _ in range(20):
        target, *running = rng.sample("abcdef", rng.randint(1, 6))
        choices = [choice for text in sets.values() for choice in everything(text, sets)]
        prices = [
            sum(costs[name] for name in running if name not in choice)
            for choice in choices
            if target in choice
        ]
        least = min(prices, default=sum(costs[name] for name in running))
        out = MatrixRules(sets, costs).forced_out(target, running)
        assert sum(costs[name] for name in out) == least


def test_r06a_a_matrix_swaps_as_groups_do() -> None:
    """Who isn't in a combination with the wanted one goes, and only then it starts."""
    sets = rules({"s": "a & c", "t": "b & c"})
    play = Play(*(model(name, 4, can_sleep=False) for name in "abc"), constraints=sets)
    for ticket, name in enumerate("ac"):
        play.at(0, arrive(ticket, name))
        play.at(0, ready(name))
        play.at(0, done(ticket))
    assert play.at(60, arrive(9, "b")) == ["stop a"]
    assert play.at(61, exited("a")) == ["start b"]
    assert play.at(62, ready("b")) == ["admit 9"]
    assert play.state("c") == "ready"
