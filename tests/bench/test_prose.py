"""Text for prompts."""

from __future__ import annotations

from llmsnap.bench.prose import Prose


def test_the_same_seed_says_the_same() -> None:
    """Another one says something else, from the first sentence on."""
    assert Prose("a").text(500) == Prose("a").text(500)
    assert Prose("a").text(100) != Prose("b").text(100)


def test_text_is_as_long_as_it_should_be() -> None:
    """To a word; and it goes on where it stopped."""
    prose = Prose("a")
    for characters in (60, 5000):
        assert characters - 1 <= len(prose.text(characters)) < characters + 20
    assert prose.text(100) != prose.text(100)
