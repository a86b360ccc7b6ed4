"""Whatever the file holds: it loads, or it gives a ConfigError that says where."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsnap.config.jsonschema import schema
from llmsnap.config.loader import loads
from llmsnap.config.resolved import resolved, rows
from llmsnap.errors import ConfigError

SEEDS = [
    path.read_text("utf-8")
    for path in sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
]
FRAGMENTS = st.sampled_from(
    [
        *"{}[],'\"\t\r\\é\x00\ud800~%",
        "\n", "  ", ": ", "- ", " #", "? ", "|\n", "&a ", "*a", "<<: *a\n", "---\n", "!!int ",
        "010", "yes", "1e999", "-1", ".inf", "${PORT}", "${MODEL_ID}", "${PID}", "${x}", "${a}",
        "${env.A}", "${env.NOPE}",
    ]
)  # fmt: skip
NAMES = st.sampled_from(
    sorted(
        {key for owner in (schema(), *schema()["$defs"].values()) for key in owner["properties"]}
        | {"m", "x", "(default)", "strip_params", "PORT"}
    )
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.sampled_from(
        ["m", "x", "${x}", "${PORT}", "z ${PORT}", "http://h:1", "5s", "8GiB", "enable"]
    ),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(NAMES, st.text(max_size=4)), inner, max_size=6),
    ),
    max_leaves=25,
)
QUICK = settings(max_examples=250)


def check(text: str) -> None:
    """Load `text`, and look at what came of it."""
    error = ""
    try:
        loaded = loads(text, environ={"A": 'a "b" \\ c', "B": ""})
    except ConfigError as refused:
        error = str(refused)
    if error:
        assert re.match(r"config\.yaml:[0-9]+: [^\n]+$", error)
        return
    json.dumps(resolved(loaded))
    assert len(rows(loaded)) == len(loaded.config.models)


@QUICK
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    """Most of it isn't even a mapping."""
    check(text)


@QUICK
@given(st.lists(FRAGMENTS, max_size=30))
def test_pieces_of_yaml(pieces: list[str]) -> None:
    """Pieces that mean something, in an order that doesn't."""
    check("".join(pieces))
    check("models:\n  m:\n    cmd: z\n    " + "".join(pieces))


@QUICK
@given(st.data())
def test_damaged_files(data: st.DataObject) -> None:
    """A good file into which pieces were put, or out of which some were cut."""
    text = data.draw(st.sampled_from(SEEDS))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        if data.draw(st.booleans()):
            text = text[:at] + data.draw(FRAGMENTS) + text[at:]
        else:
            text = text[:at] + text[at + data.draw(st.integers(1, 30)) :]
    check(text)


@QUICK
@given(TREES)
def test_good_yaml_that_makes_no_sense(tree: Any) -> None:
    """Known keys with values of any kind, at the top and in a model."""
    with suppress(yaml.YAMLError, UnicodeEncodeError):
        check(yaml.safe_dump(tree))
        check(yaml.safe_dump({"models": {"m": tree}}))
        check(
            yaml.safe_dump(
                {"macros": {"x": 1}, "models": {"m": {"cmd": "z ${PORT}"}}, "groups": tree}
            )
        )


@QUICK
@given(st.dictionaries(NAMES, TREES, max_size=5), st.dictionaries(NAMES, TREES, max_size=5))
def test_known_keys_with_any_value(top: dict[str, Any], model: dict[str, Any]) -> None:
    """A model that works, but for one or the other key."""
    body = {"cmd": "z ${PORT}"} | {key: value for key, value in model.items() if key != "macros"}
    check(yaml.safe_dump(top | {"models": {"m": body}}, allow_unicode=False))
