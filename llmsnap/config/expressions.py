"""The expressions of `matrix.sets`: which models may be loaded together.

    or    := and ("|" and)*
    and   := atom ("&" atom)*
    atom  := NAME | "+" NAME | "(" or ")"

`&` is together, `|` is one of them, `+name` stands for another set. Blanks mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

_TOKEN: Final = re.compile(r"\s*(?:(?P<name>[\w.-]+)|(?P<mark>[|&+()])|(?P<other>\S))")
_MOST_LEVELS: Final = 64


@dataclass(frozen=True, slots=True)
class Name:
    """A model, by its id or a short name."""

    name: str


@dataclass(frozen=True, slots=True)
class Reference:
    """Whatever another set allows."""

    set: str


@dataclass(frozen=True, slots=True)
class Together:
    """All of these."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these."""

    parts: tuple[Expression, ...]


Expression = Name | Reference | Together | OneOf


def parse(text: str) -> Expression:
    """Return what `text` says. Raises ValueError that says what is wrong, and how to mend it."""
    if not text.strip():
        raise ValueError("the expression is empty; write models with & and | between them")
    return _Parser(text).whole()


def leaves(expression: Expression) -> Iterator[Name | Reference]:
    """Yield the names and references in `expression`, from left to right."""
    if isinstance(expression, Name | Reference):
        yield expression
        return
    for part in expression.parts:
        yield from leaves(part)


def combinations(sets: Mapping[str, Expression], bits: Mapping[str, int]) -> list[int]:
    """Return what the sets allow, as sums of `bits`: all that matters is who has one.

    Each set stands behind those that it refers to. What lies within another combination of the same
    set is left out.
    """
    found: dict[str, list[int]] = {}
    for name, expression in sets.items():
        found[name] = _choices(expression, bits, found)
    return [choice for choices in found.values() for choice in choices]


def _choices(
    expression: Expression, bits: Mapping[str, int], sets: Mapping[str, list[int]]
) -> list[int]:
    match expression:
        case Name(name):
            return [bits.get(name, 0)]
        case Reference(name):
            return sets[name]
    parts = [_choices(part, bits, sets) for part in expression.parts]
    if isinstance(expression, OneOf):
        return _largest(choice for part in parts for choice in part)
    return reduce(lambda ones, more: _largest(one | other for one in ones for other in more), parts)


def _largest(choices: Iterable[int]) -> list[int]:
    """Return `choices` in their order without those that lie within another one.

    This is what keeps the number of combinations small, whatever the sets look like.
    """
    largest: list[int] = []
    for choice in choices:
        if any(choice | other == other for other in largest):
            continue
        largest = [other for other in largest if other | choice != choice]
        largest.append(choice)
    return largest


class _Parser:
    """Goes over one text from left to right, looking one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._token = ""
        self._is_name = False
        self._levels = 0
        self._advance()

    def whole(self) -> Expression:
        found = self._or()
        if self._token:
            remedy = "put & or | before it" if self._token != ")" else "take it out"
            raise ValueError(f"unexpected {self._where()} behind a whole expression; {remedy}")
        return found

    def _or(self) -> Expression:
        parts = [self._and()]
        while self._token == "|":
            self._advance()
            parts.append(self._and())
        return OneOf(tuple(parts)) if len(parts) > 1 else parts[0]

    def _and(self) -> Expression:
        parts = [self._atom()]
        while self._token == "&":
            self._advance()
            parts.append(self._atom())
        return Together(tuple(parts)) if len(parts) > 1 else parts[0]

    def _atom(self) -> Expression:
        if self._is_name:
            return Name(self._taken())
        if self._token == "+":
            self._advance()
            if not self._is_name:
                raise ValueError(f"expected the name of a set behind '+', not {self._where()}")
            return Reference(self._taken())
        if self._token != "(":
            raise ValueError(f"expected a model, '+' or '(', not {self._where()}")
        self._levels += 1
        if self._levels > _MOST_LEVELS:
            raise ValueError(f"more than {_MOST_LEVELS} parentheses in each other; use sets")
        self._advance()
        inner = self._or()
        if self._token != ")":
            raise ValueError(f"missing closing parenthesis: expected ')', not {self._where()}")
        self._levels -= 1
        self._advance()
        return inner

    def _taken(self) -> str:
        name = self._token
        self._advance()
        return name

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:  # nothing but blanks is left
            self._token, self._is_name, self._at = "", False, len(self._text)
            return
        kind = match.lastgroup or ""
        if kind == "other":
            position = match.start("other") + 1
            message = f"unexpected character {match['other']!r} at position {position}"
            raise ValueError(f"{message}; use vars for ids with such characters")
        self._token, self._is_name, self._at = match[kind], kind == "name", match.end()

    def _where(self) -> str:
        if not self._token:
            return "the end"
        return f"{self._token!r} at position {self._at - len(self._token) + 1}"
