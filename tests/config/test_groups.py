"""Members of groups."""

from __future__ import annotations

import pytest

from llmsnap.config.sections import DEFAULT_GROUP
from tests.config.reading import read, refusal

MODELS = "models: {a: {cmd: 'z ${PORT}', aliases: [aa]}, qwen: {cmd: 'z ${PORT}'}}\n"


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("aa", "'aa' is an alias; write the model's id, 'a'"),
        ("qwne", "no model has the id 'qwne'; did you mean 'qwen'?"),
        ("zzz", "no model has the id 'zzz'; define it under models"),
    ],
)
def test_members_are_models(member: str, message: str) -> None:
    """Peers find out when they start, or run a model twice."""
    error = refusal(MODELS + f"groups:\n  g:\n    members:\n    - a\n    - {member}\n")

    assert error == f"config.yaml:6: groups.g.members[1]: {message}"


def test_the_automatic_group_comes_last() -> None:
    """Others keep the order of the file."""
    config = read(MODELS + "groups: {z: {members: [a]}, b: {}}\n")

    assert list(config.groups) == ["z", "b", DEFAULT_GROUP]
    assert config.groups["b"].members == ()
    assert config.groups[DEFAULT_GROUP].members == ("qwen",)


def test_a_group_without_a_body() -> None:
    """It has the defaults, and nobody in it."""
    assert read(MODELS + "groups: {g: ~}\n").groups["g"].swap


def test_numbers_as_members() -> None:
    """A model whose id is a number is named by it."""
    config = read("models: {123: {cmd: 'z ${PORT}'}}\ngroups: {g: {members: [123]}}\n")

    assert config.groups["g"].members == ("123",)
