"""What the expressions of a matrix say."""

from __future__ import annotations

import re

import pytest

from llmsnap.config.expressions import Name, OneOf, Reference, Together, leaves, parse

A, B, C = Name("a"), Name("b"), Name("c")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a", A),
        (" a&b ", Together((A, B))),
        ("a | b & c", OneOf((A, Together((B, C))))),
        ("(a|b)\n& c", Together((OneOf((A, B)), C))),
        ("+x & a", Together((Reference("x"), A))),
        ("((a))", A),
        ("qwen-3.5_é", Name("qwen-3.5_é")),
    ],
)
def test_meanings(text: str, meaning: object) -> None:
    """`&` binds tighter than `|`, and blanks mean nothing."""
    assert parse(text) == meaning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "the expression is empty; write models with & and | between them"),
        ("a & /x", "unexpected character '/' at position 5; use vars for ids with such"),
        ("a b", "unexpected 'b' at position 3 behind a whole expression; put & or | before it"),
        ("a)", "unexpected ')' at position 2 behind a whole expression; take it out"),
        ("(a", "missing closing parenthesis: expected ')', not the end"),
        ("(a b)", "missing closing parenthesis: expected ')', not 'b' at position 4"),
        ("+", "expected the name of a set behind '+', not the end"),
        ("+(a)", "expected the name of a set behind '+', not '(' at position 2"),
        ("a &", "expected a model, '+' or '(', not the end"),
        ("| a", "expected a model, '+' or '(', not '|' at position 1"),
        ("(" * 65 + "a", "more than 64 parentheses in each other; use sets"),
    ],
)
def test_errors(text: str, message: str) -> None:
    """They say where, and what was expected."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parse(text)


def test_leaves_are_names_and_references() -> None:
    """From left to right."""
    assert [*leaves(parse("(a | +x) & b"))] == [A, Reference("x"), B]
