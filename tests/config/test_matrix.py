"""A matrix in the file: what can't be meant, and what is made of the rest."""

from __future__ import annotations

import pytest

from llmsnap.config.expressions import Name, Reference, Together
from llmsnap.config.matrix import costs, ordered_sets
from llmsnap.config.sections import MatrixConfig
from tests.config.reading import read, refusal

MODELS = "models: {a: {cmd: 'z ${PORT}', aliases: [al]}, org/b: {cmd: 'z ${PORT}'}}\n"


def error(matrix: str) -> str:
    """Return the message of a matrix on the second line."""
    return refusal(f"{MODELS}matrix: {matrix}\n").removeprefix("config.yaml:2: ")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("{}", "matrix.sets: matrix: no sets; write at least one under sets"),
        (
            "{vars: {x_y: a}, sets: {s: a}}",
            "matrix.vars.x_y: matrix: var 'x_y' must be 1 to 32 letters, digits, dots and dashes; "
            "rename it",
        ),
        (
            "{vars: {x: al}, sets: {s: a}}",
            "matrix.vars.x: matrix: var 'x': 'al' is an alias; write the model's id, 'a'",
        ),
        (
            "{evict_costs: {zz: 2}, sets: {s: a}}",
            "matrix.evict_costs.zz: matrix: evict cost of 'zz', which is neither a var nor a "
            "model; take it out",
        ),
        (
            "{sets: {s: 'a & org/b'}}",
            "matrix.sets.s: matrix: set 's': unexpected character '/' at position 8; "
            "use vars for ids with such characters",
        ),
        (
            "{sets: {s: 'a & q'}}",
            "matrix.sets.s: matrix: set 's': unknown var or model 'q'; define it under models",
        ),
        (
            "{sets: {first: a, s: 'a & +firts'}}",
            "matrix.sets.s: matrix: set 's': undefined set 'firts'; did you mean '+first'?",
        ),
        (
            "{sets: {s: '+s'}}",
            "matrix.sets.s: matrix: set 's': circular reference s -> s; break it",
        ),
    ],
)
def test_what_cannot_be_meant(matrix: str, message: str) -> None:
    """Each error names its key, and the set that it is about."""
    assert error(matrix) == message


def test_a_circle_names_its_sets() -> None:
    """In the order in which they refer to each other."""
    message = error("{sets: {s: '+t', t: 'a & +u', u: '+s'}}")

    assert any(
        cycle in message for cycle in ("s -> t -> u -> s", "t -> u -> s -> t", "u -> s -> t")
    )


def test_sets_come_behind_those_they_refer_to() -> None:
    """Otherwise they keep the order of the file; short names give way to ids."""
    config = read(
        MODELS + "matrix: {vars: {b: org/b}, evict_costs: {b: 5}, "
        "sets: {z: '+m & a', y: a, m: b, a: '+y'}}\n"
    )
    sets = ordered_sets(config.matrix)

    assert list(sets) == ["m", "z", "y", "a"]
    assert sets["m"] == Name("org/b")
    assert sets["z"] == Together((Reference("m"), Name("a")))
    assert costs(config.matrix) == {"org/b": 5}


def test_a_long_chain_of_sets_is_fine() -> None:
    """However far away the last one is."""
    sets = {f"s{n}": f"+s{n + 1}" for n in range(3000)} | {"s3000": "a"}

    assert next(iter(ordered_sets(MatrixConfig(sets=sets)))) == "s3000"
