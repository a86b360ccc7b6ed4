"""JSON texts as people and programs write them: every spacing, escape and number format."""

from __future__ import annotations

import json

from hypothesis import strategies as st

KEYS = ["model", "a", "b", "a.b", "0", "-1", "ключ", 'q"\\', "stream"]

_spaces = st.text(" \t\n\r", max_size=2)
_numbers = st.sampled_from(["0", "-0", "1.50", "1e5", "-2E-3", "123456789012345678901234567890"])
_words = st.sampled_from(["true", "false", "null"])
_strings = st.builds(
    json.dumps, st.text(max_size=8) | st.sampled_from(['"', "\\", '\\"', "[{", "},]"])
)


def _list(items: list[str], spaces: list[str]) -> str:
    before, after, empty = spaces
    return (
        "[" + ",".join(before + item + after for item in items) + (empty if not items else "") + "]"
    )


def _object(items: list[tuple[str, str]], spaces: list[str]) -> str:
    before, after, empty = spaces
    texts = [before + json.dumps(key) + after + ":" + before + value for key, value in items]
    return "{" + (",".join(text + after for text in texts) or empty) + "}"


def _nested(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    spaces = st.lists(_spaces, min_size=3, max_size=3)
    pairs = st.tuples(st.sampled_from(KEYS), values)
    return st.builds(_list, st.lists(values, max_size=4), spaces) | st.builds(
        _object, st.lists(pairs, max_size=4), spaces
    )


def json_texts() -> st.SearchStrategy[str]:
    """Any value, written in any way; keys may stand twice."""
    values = st.recursive(_numbers | _words | _strings, _nested, max_leaves=12)
    return st.builds(lambda a, text, b: a + text + b, _spaces, values, _spaces)


def json_objects() -> st.SearchStrategy[str]:
    """Objects only, as request bodies are."""
    return json_texts().filter(lambda text: text.lstrip().startswith("{"))
