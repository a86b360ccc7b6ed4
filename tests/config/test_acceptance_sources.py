"""The acceptance rows of several files, by their numbers: what llama-swap's own loader did."""

from __future__ import annotations

import pytest

from llmsnap.config.loader import loads_all
from tests.config.test_sources import A, refusal, together


def test_c69_a_model_in_two_files() -> None:
    """The error names the model and both files."""
    assert refusal(A, A) == "f2:1: models.a: duplicate models 'a', already at f1:1; remove one"


def test_c70_values_must_agree() -> None:
    """Different ones are a conflict, equal ones are fine."""
    assert "f2:1: logLevel: conflict at logLevel" in refusal("logLevel: info", "logLevel: debug")
    assert together("logLevel: info", "logLevel: info").config.log_level == "info"


def test_c72_lists_are_joined() -> None:
    """In the order of the files."""
    config = together("apiKeys: [k0]", "apiKeys: [k1]", "apiKeys: [k2]").config

    assert config.api_keys == ("k0", "k1", "k2")


@pytest.mark.parametrize("texts", [("models:", A), (A, "models:")])
def test_c72a_an_empty_list_of_models(texts: tuple[str, str]) -> None:
    """Beside one that isn't empty it is a mistake."""
    assert "models: expected a mapping" in refusal(*texts)


def test_c72b_a_null_beside_a_list() -> None:
    """It is another kind of thing."""
    assert "conflict at apiKeys: incompatible node kinds" in refusal(
        "apiKeys: null", "apiKeys: [k]"
    )


def test_c72c_parts_of_one_thing_in_two_files() -> None:
    """A matrix and a group are described in one."""
    sets = "matrix: {sets: {s: a}}"
    assert "duplicate matrix 'sets'" in refusal(A + sets, sets)
    group = "groups: {g: {members: [a]}}"
    assert "duplicate groups 'g'" in refusal(A + group, group)


def test_c72d_macros_must_agree() -> None:
    """The error names the macro."""
    assert "conflict at macros.x" in refusal("macros: {x: 1}", "macros: {x: 2}")
    assert together("macros: {x: 1}", "macros: {x: 1}").config.macros == {"x": 1}


def test_c72e_a_file_that_is_a_list() -> None:
    """The top is a mapping in each of them."""
    assert refusal(A, "- a") == "f2:1: expected a mapping, not a list; write key: value"


def test_one_text_is_what_it_was() -> None:
    """With its name in front of what is wrong."""
    assert loads_all([("x", A)]).config.models.keys() == {"a"}
