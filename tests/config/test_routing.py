"""Which of groups and matrix counts, and whose requests go first."""

from __future__ import annotations

import pytest

from tests.config.reading import loaded, read, refusal

MODELS = "models: {a: {cmd: 'z ${PORT}', aliases: [al]}, b: {cmd: 'z ${PORT}'}}\n"
BOTH = "groups: {g: {members: [a, b]}}, matrix: {sets: {s: 'a & b'}}"


def test_the_newer_place_of_groups() -> None:
    """`settings.groups` is what `groups` was."""
    config = read(MODELS + "routing: {router: {settings: {groups: {g: {members: [b]}}}}}\n")

    assert config.groups["g"].members == ("b",)
    assert config.groups["(default)"].members == ("a",)
    assert config.matrix.sets == {}


def test_the_newer_place_of_the_matrix() -> None:
    """With `use: matrix`, `settings.matrix` is what `matrix` was."""
    text = "routing: {router: {use: matrix, settings: {matrix: {sets: {s: 'a & b'}}}}}\n"

    assert read(MODELS + text).matrix.sets == {"s": "a & b"}


@pytest.mark.parametrize(
    ("use", "ignored", "sets"),
    [
        ("", "matrix", {}),
        ("use: group, ", "matrix", {}),
        ("use: matrix, ", "groups", {"s": "a & b"}),
    ],
)
def test_one_of_two_settings_counts(use: str, ignored: str, sets: dict[str, str]) -> None:
    """The other one is ignored, and whoever wrote it is told."""
    result = loaded(MODELS + f"routing: {{router: {{{use}settings: {{{BOTH}}}}}}}\n")

    assert result.config.matrix.sets == sets
    assert ("g" in result.config.groups) == (ignored == "matrix")
    (warning,) = result.warnings
    assert f"routing.router.settings.{ignored}: ignored, for routing.router.use is" in warning


def test_faults_name_the_newer_place() -> None:
    """So that they can be found."""
    assert "routing.router.settings.groups.g.members[0]: no model has the id 'zz'" in refusal(
        MODELS + "routing: {router: {settings: {groups: {g: {members: [zz]}}}}}\n"
    )
    assert "routing.router.settings.matrix.sets.s: matrix: set 's'" in refusal(
        MODELS + "routing: {router: {use: matrix, settings: {matrix: {sets: {s: zz}}}}}\n"
    )


def test_priorities_are_those_of_models() -> None:
    """An alias means its model; llama-swap takes it and does nothing."""
    text = "routing: {scheduler: {settings: {fifo: {priority: {al: 5, b: -1}}}}}\n"

    fifo = read(MODELS + text).routing.scheduler.settings.fifo
    assert fifo.priority == {"a": 5, "b": -1}


def test_two_priorities_of_one_model() -> None:
    """One of them would be lost."""
    text = "routing: {scheduler: {settings: {fifo: {priority: {al: 5, a: 1}}}}}\n"

    assert "'a' and 'al' are the same model; keep one of them" in refusal(MODELS + text)
