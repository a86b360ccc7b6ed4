"""The JSON Schema, and the file that editors take it from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from llmsnap.config.jsonschema import schema, schema_text

FILE = Path(__file__).parents[2] / "configs" / "schema.json"


def property_of(path: str) -> Any:
    """Return the schema of `Struct.key`; without struct it is a global key."""
    struct, _, key = path.rpartition(".")
    document = schema()
    return (document["$defs"][struct] if struct else document)["properties"][key]


def test_the_kept_file_is_up_to_date() -> None:
    """After a change of the structs: `make schema`."""
    assert FILE.read_text(encoding="utf-8") == schema_text()


def test_every_key_is_described() -> None:
    """From the text below its field."""
    document = schema()
    for owner in (document, *document["$defs"].values()):
        assert owner["additionalProperties"] is False
        for key, value in owner["properties"].items():
            assert value["description"].endswith("."), key


def test_all_references_lead_somewhere() -> None:
    """And every definition is used."""
    references = set(re.findall(r'"#/\$defs/(\w+)"', schema_text()))

    assert references == set(schema()["$defs"])


def test_units_may_be_text() -> None:
    """A time or size is a number or text with a unit; macros are text anywhere."""
    assert property_of("ScheduleConfig.hold")["type"] == ["number", "string"]
    assert property_of("maxBody")["type"] == ["integer", "string"]
    assert property_of("ModelConfig.unlisted")["type"] == ["boolean", "string"]
    assert property_of("Filters.stripParams")["type"] == "string"


@pytest.mark.parametrize(
    ("key", "fine", "wrong"),
    [
        ("ScheduleConfig.hold", ["5s", "1h30m", "500ms", "2.5", "${x}", "${a}s"], ["5x", "s", ""]),
        ("maxBody", ["8GiB", "8 gb", "512", "10B", "${x}MiB"], ["GiB", "8 Gx", ""]),
        ("startPort", ["${x}"], ["5800", "$x"]),
    ],
)
def test_patterns(key: str, fine: list[str], wrong: list[str]) -> None:
    """They agree with what the loader takes."""
    pattern = property_of(key)["pattern"]

    assert all(re.search(pattern, text) for text in fine)
    assert not any(re.search(pattern, text) for text in wrong)


def test_older_and_future_keys_are_allowed() -> None:
    """An editor shouldn't mark what the loader takes."""
    document = schema()

    assert list(document["patternProperties"]) == ["^x-"]
    assert property_of("Filters.strip_params")["type"] == "string"
    assert "minimum" in property_of("startPort")
    assert property_of("ModelConfig.checkEndpoint")["default"] == "/health"
    assert document["$defs"]["SleepStep"]["required"] == ["endpoint"]
