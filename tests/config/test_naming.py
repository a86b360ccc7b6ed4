"""Which names mean which model."""

from __future__ import annotations

import pytest

from tests.config.reading import loaded, read, refusal


def test_all_names() -> None:
    """Ids and aliases lead to ids."""
    config = read(
        """
        models:
          a: {cmd: "z ${PORT}", aliases: [x, y], filters: {setParamsByID: {x: {q: 1}, w: {}}}}
          b: {cmd: "z ${PORT}"}
        """
    )

    assert config.names() == {"a": "a", "b": "b", "x": "a", "y": "a", "w": "a"}
    assert config.models["a"].aliases == ("x", "y", "w")


def test_names_are_case_sensitive() -> None:
    """`Q` and `q` are two."""
    config = read("models: {a: {cmd: 'z ${PORT}', aliases: [q]}, Q: {cmd: 'z ${PORT}'}}")

    assert config.names() == {"a": "a", "q": "a", "Q": "Q"}


def test_an_alias_twice_within_a_model() -> None:
    """It is an error too."""
    message = refusal("models: {a: {cmd: 'z ${PORT}', aliases: [q, q]}}")

    assert "models.a.aliases[1]: duplicate alias 'q'" in message


def test_two_models_with_the_same_name_by_id() -> None:
    """The second one is refused, and the first is named."""
    message = refusal(
        """
        models:
          a: {cmd: "z ${PORT}", filters: {setParamsByID: {q: {}}}}
          b: {cmd: "z ${PORT}", filters: {setParamsByID: {q: {}}}}
        """
    )

    assert "config.yaml:4: models.b.filters.setParamsByID.q: duplicate alias 'q'" in message
    assert "already used by model 'a'" in message


def test_empty_aliases() -> None:
    """They are dropped with a warning: an unset variable may have made them."""
    result = loaded("models: {a: {cmd: 'z ${PORT}', aliases: ['', b, '${env.X}']}}", X="")

    assert result.config.models["a"].aliases == ("b",)
    assert "models.a.aliases[0]: an empty alias is ignored" in result.warnings[0]
    assert len(result.warnings) == 2


def test_preloading_a_misspelt_model() -> None:
    """It is left out, and the nearest name is told."""
    result = loaded(
        "models: {qwen: {cmd: 'z ${PORT}'}}\nhooks: {on_startup: {preload: [qwne, qwen]}}\n"
    )

    assert result.config.hooks.on_startup.preload == ("qwen",)
    assert result.warnings == (
        "config.yaml:2: hooks.on_startup.preload[0]: 'qwne' isn't a model or alias; "
        "did you mean 'qwen'?",
    )


@pytest.mark.parametrize("name", ["a", "al"])
def test_the_default_model(name: str) -> None:
    """By its id or an alias."""
    config = read(f"models: {{a: {{cmd: 'z ${{PORT}}', aliases: [al]}}}}\ndefault: {name}\n")

    assert config.default == "a"


def test_a_default_model_that_there_isnt() -> None:
    """It could never come."""
    text = "models: {small: {cmd: 'z ${PORT}'}}\ndefault: smal\n"

    assert refusal(text) == (
        "config.yaml:2: default: no model or alias 'smal'; did you mean 'small'?"
    )
