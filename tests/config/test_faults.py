"""Places and remedies in messages."""

from __future__ import annotations

import pytest

from llmsnap.config.faults import located, nearest, one_of


def test_a_place_is_file_line_and_path() -> None:
    """The path is left out where there is none."""
    assert located("c.yaml", 3, "models.m.ttl", "bad; mend it") == (
        "c.yaml:3: models.m.ttl: bad; mend it"
    )
    assert located("c.yaml", 3, "", "bad") == "c.yaml:3: bad"


def test_a_place_is_one_short_line() -> None:
    """Whatever characters a key has, and however long it is."""
    assert located("c", 1, "a\nb\x00é", "bad") == "c:1: a\\nb\\x00é: bad"
    assert located("c", 1, "k" * 1000, "bad") == f"c:1: {'k' * 200}…: bad"


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("tll", "ttl"),
        ("aliasses", "aliases"),
        ("globalttl", "globalTTL"),
        ("xyzzy", None),
        ("", None),
    ],
)
def test_the_nearest_word(word: str, known: str | None) -> None:
    """Case doesn't count; what is nothing alike has none."""
    assert nearest(word, ["ttl", "aliases", "globalTTL", "cmd"]) == known
    assert nearest(word, []) is None


def test_a_choice_in_words() -> None:
    """With an `or` before the last."""
    assert one_of(["a", "b", "c"]) == "a, b or c"
    assert one_of(["a"]) == "a"
