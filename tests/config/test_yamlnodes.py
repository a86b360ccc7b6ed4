"""Nodes: lines, keys, aliases, merge keys, and limits."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import yaml

from llmsnap.config import yamlnodes
from llmsnap.config.faults import Fault
from llmsnap.config.yamlnodes import (
    ListNode,
    MapNode,
    Node,
    ScalarNode,
    line_of,
    parse,
    path_at,
)


def plain(node: Node) -> Any:
    """Return the values in `node`, without lines."""
    match node:
        case MapNode():
            return {key: plain(item) for key, item in node.items.items()}
        case ListNode():
            return [plain(item) for item in node.items]
        case ScalarNode():
            return node.value


def values(text: str) -> Any:
    """Return the values in `text`."""
    return plain(parse(text))


def fault(text: str) -> Fault:
    """Return what is wrong with `text`."""
    with pytest.raises(Fault) as caught:
        parse(text)
    return caught.value


@pytest.fixture(params=["C", "Python"])
def _parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = yaml.CBaseLoader if request.param == "C" else yaml.BaseLoader
    monkeypatch.setattr(yamlnodes, "Loader", loader)


@pytest.mark.usefixtures("_parser")
def test_values_are_typed() -> None:
    """Quoted words are text, others are what Go makes of them; block texts are text."""
    text = "a: 010\nb: '010'\nc: yes\nd: [1.5, ~, \"x\"]\ne: |\n  5\nf: !!str 5\ng: ! 5\n"

    assert values(text) == {
        "a": 8, "b": "010", "c": "yes", "d": [1.5, None, "x"], "e": "5\n", "f": "5", "g": 5,
    }  # fmt: skip


@pytest.mark.usefixtures("_parser")
def test_keys_are_text_as_written() -> None:
    """A number, a bool, a float or null as a key keeps its spelling."""
    assert list(values("1: a\ntrue: a\n1.10: a\n010: a\n~: a\n").keys()) == [
        "1", "true", "1.10", "010", "~",
    ]  # fmt: skip


@pytest.mark.usefixtures("_parser")
def test_lines() -> None:
    """Keys and values know where they stand, aliases where they are used."""
    root = parse("a:\n  b: 1\n\n  c:\n  - x\n  - y\n")

    assert line_of(root, "a", "b") == 2
    assert line_of(root, "a", "c") == 4
    assert line_of(root, "a", "c", 1) == 6
    assert line_of(root, "a", "nope", "more") == 1
    assert line_of(root, "a", "c", 7) == 4


def test_the_path_at_a_line() -> None:
    """It is that of the last key that begins there or before."""
    root = parse("a:\n  b: 1\n  c:\n  - x\n  - y:\n    - z\nd: 2\n")

    assert [path_at(root, line) for line in range(1, 8)] == [
        "a", "a.b", "a.c", "a.c[0]", "a.c[1].y", "a.c[1].y[0]", "d",
    ]  # fmt: skip
    assert path_at(parse("\n\na: 1"), 1) == ""


@pytest.mark.usefixtures("_parser")
def test_merge_keys() -> None:
    """Own values win wherever they stand, earlier sources win over later ones, order is kept."""
    merged = values("x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {c: 3, <<: [*x, *y], d: 3}\n")["z"]

    assert merged == {"c": 3, "a": 1, "b": 1, "d": 3}
    assert list(merged) == ["c", "a", "b", "d"]


def test_own_values_stand_where_they_were_merged() -> None:
    """So that an overridden macro keeps its place among the others."""
    assert list(values("x: &x {a: 1, b: 1}\nz: {<<: *x, c: 3, a: 3}\n")["z"]) == ["a", "b", "c"]


@pytest.mark.usefixtures("_parser")
def test_a_quoted_merge_key_is_a_key() -> None:
    """Quotes take its meaning away."""
    assert values('"<<": 1') == {"<<": 1}


@pytest.mark.usefixtures("_parser")
def test_only_the_first_document_counts() -> None:
    """Whatever the second one holds."""
    assert values("a: 1\n---\nb: {\n") == {"a": 1}
    assert values("") is None
    assert values("# nothing\n") is None


@pytest.mark.usefixtures("_parser")
@pytest.mark.parametrize(
    ("text", "line", "path", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 4, "b.c", "the key is already at line 3"),
        ("1: a\n'1': b\n", 2, "1", "the key is already at line 1"),
        ("a: 1\nb: *c\n", 2, "b", "no anchor &c comes before *c"),
        ("a: &a [1, *a]\n", 1, "a[1]", "*a stands inside &a itself"),
        ("a:\n  <<: 1\n", 2, "a", "<< takes a mapping or a list of mappings"),
        ("a: {<<: [{b: 1}, 2]}\n", 1, "a", "<< takes a mapping or a list of mappings"),
        ("? [a]\n: 1\n", 1, "", "a list or mapping can't be a key"),
        ("a: !!int x\n", 1, "a", "'x' can't be read as !!int; remove the tag"),
        ("a:\n\tb: 1\n", 2, "", "indent with spaces, not with tabs"),
        ("a: b: c\n", 1, "", "mapping values are not allowed"),
        ("  a: 1\nb: 2\n", 2, "", "not valid YAML"),
        ("a: \x00\n", 1, "", "not valid YAML"),
        ("a: \ud800\n", 1, "", "not valid YAML"),
    ],
)
def test_faults(text: str, line: int, path: str, message: str) -> None:
    """Each says on which line and at which key, and what to do."""
    found = fault(text)

    assert message in str(found)
    assert (found.path, ";" in str(found)) == (path, True)
    if "\x00" not in text and "\ud800" not in text:
        assert found.line == line


@pytest.mark.parametrize("text", ["- " * 65, "{a: " * 65, "? " * 65, "[" * 65])
def test_nesting_is_bounded(text: str) -> None:
    """65 levels are refused before they are read to the end."""
    assert "nested more than 64 levels deep" in str(fault(text))


def test_nesting_by_aliases_is_bounded() -> None:
    """Aliases count with what they stand for."""
    rungs = "\n".join(f"k{i}: &k{i} [[[[[[[[[[*k{i - 1}]]]]]]]]]]" for i in range(1, 9))

    assert "nested more than 64 levels deep" in str(fault(f"k0: &k0 x\n{rungs}\n"))


def test_an_alias_bomb_is_refused() -> None:
    """A few lines that stand for a billion values are refused without making them."""
    rungs = "\n".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9)}]" for i in range(1, 10))

    assert "more than 200000 values" in str(fault(f"k0: &k0 lol\n{rungs}\n"))


def test_a_bomb_of_long_texts_is_refused() -> None:
    """Long texts weigh more than short ones."""
    text = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 200)}]\n"

    assert "more than 200000 values" in str(fault(text))


def test_a_long_file_is_refused() -> None:
    """Before it is parsed."""
    assert "the file is over 8 MiB" in str(fault("#" * (8 * 1024**2 + 1)))


def test_recursion_is_no_concern() -> None:
    """The deepest file that is allowed needs far fewer frames than Python has."""
    text = "[" * 62 + "]" * 62

    assert sys.getrecursionlimit() >= 1000
    assert parse(text).height == 62
