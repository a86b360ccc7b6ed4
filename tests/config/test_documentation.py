"""docs/configuration.md against the schema: every key with its type and default."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmsnap.config.decode import table
from llmsnap.config.jsonschema import schema
from llmsnap.config.loader import load
from llmsnap.config.settings import LOG_LEVELS, LOG_TIME_FORMATS
from llmsnap.config.yamlnodes import MapNode, Node, parse

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
SECTIONS = {
    "## Global keys": "",
    "## Model keys": "ModelConfig",
    "### Sleep steps": "SleepStep",
    "## Groups": "GroupConfig",
    "## Matrix": "MatrixConfig",
    "## Routing": "RoutingConfig",
    "## Peers": "PeerConfig",
    "## Profiles": "ProfileConfig",
    "## Selectors": "SelectorConfig",
}
INHERITED = {"proxy", "ttl", "unloadTimeout", "sendLoadingState", "sleepMode", "sleepAfter"}
"""Keys of models whose default is another key's value."""
TYPES = {
    "string": "text",
    "integer": "whole number",
    "boolean": "bool",
    "array": "list",
    "object": "mapping",
}


@dataclass(frozen=True)
class Key:
    """One key as the schema has it."""

    type: str
    default: str
    choices: tuple[str, ...]


def rows(section: str) -> dict[str, list[str]]:
    """Return the rows of the first table in `section`, by key."""
    body = TEXT.split(f"\n{section}\n")[1].split("\n## ")[0].split("\n### ")[0]
    found = {}
    for line in re.findall(r"^\| `.*\|$", body, re.MULTILINE):
        key, *cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        found[key.strip("`")] = [cell.replace("\\|", "|") for cell in cells]
    return found


def keys(struct: str) -> dict[str, Key]:
    """Return the keys of `struct` in the schema, those of structs in it with their path."""
    document = schema()
    owner = document["$defs"][struct] if struct else document
    required = owner.get("required", [])
    return dict(_keys(owner["properties"], "", required))


def _keys(properties: dict[str, Any], path: str, required: list[str]) -> Iterator[tuple[str, Key]]:
    for name, value in properties.items():
        if name == "strip_params":
            continue
        if "$ref" in value:
            struct = value["$ref"].rpartition("/")[2]
            if struct in SECTIONS.values():
                yield f"{path}{name}", Key("mapping", "`{}`", ())
                continue
            yield from _keys(schema()["$defs"][struct]["properties"], f"{path}{name}.", [])
            continue
        default = "required" if name in required else f"`{json.dumps(value['default'])}`"
        yield f"{path}{name}", Key(_type(value), default, tuple(value.get("enum", ())))


def _type(value: dict[str, Any]) -> str:
    if "anyOf" in value:
        names = [_type(branch) for branch in value["anyOf"] if branch.get("type") != "null"]
        return " or ".join(names)
    if "enum" in value:
        return "choice"
    if "pattern" in value and "Seconds" in value.get("description", ""):
        return "time" if value["type"][0] == "number" else "whole number"
    if "Bytes as a number" in value.get("description", ""):
        return "size"
    type_ = value["type"]
    return TYPES[type_ if isinstance(type_, str) else type_[0]]


@pytest.mark.parametrize(("section", "struct"), SECTIONS.items())
def test_every_key_is_documented(section: str, struct: str) -> None:
    """And no key that there isn't."""
    assert set(rows(section)) == set(keys(struct))


@pytest.mark.parametrize(("section", "struct"), SECTIONS.items())
def test_types_defaults_and_origins(section: str, struct: str) -> None:
    """As the schema has them; choices are all named."""
    for name, key in keys(struct).items():
        type_, default, origin, meaning = rows(section)[name]
        assert type_ == key.type, name
        if struct != "ModelConfig" or name not in INHERITED:
            assert default == key.default, name
        assert origin in ("both", "llama-swap", "llmsnap (Go)", "new"), name
        assert len(meaning) > 5, name
        for choice in key.choices:
            assert f"`{choice}`" in meaning, f"{name}: {choice}"


def test_words_that_are_known_are_listed() -> None:
    """Those that the schema can't list, since others are taken too."""
    meanings = rows("## Global keys")

    assert all(f"`{word}`" in meanings["logLevel"][3] for word in LOG_LEVELS)
    assert all(f"`{word}`" in meanings["logTimeFormat"][3] for word in LOG_TIME_FORMATS)


PEERS_FILE = Path(__file__).with_name("everything_of_peers.yaml")


def has_key(node: Node | None, path: list[str]) -> bool:
    """Whether a file has a key, each part of its path below the last one."""
    for part in path:
        node = node.get(part) if isinstance(node, MapNode) else None
    return node is not None


def test_every_key_of_peers_loads_and_what_is_different_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key that they have is in the file, nothing in it is complained of."""
    monkeypatch.setenv("PEERS_KEY", "sk-peers")
    monkeypatch.setenv("PEERS_FOLDER", str(tmp_path))
    root = table(parse(PEERS_FILE.read_text(encoding="utf-8")), "")
    models = root.items["models"]
    assert isinstance(models, MapNode)
    theirs = {"both", "llama-swap", "llmsnap (Go)"}
    top, below = rows("## Global keys"), rows("## Model keys")
    older = {"groups", "matrix"}  # stand below `routing` in a newer file
    top_keys = [key for key, row in top.items() if row[2] in theirs and key not in older]
    model_keys = [key for key, row in below.items() if row[2] in theirs]

    assert len(top_keys) > 25
    assert len(model_keys) > 30
    assert [key for key in top_keys if not has_key(root, key.split("."))] == []
    assert [
        key
        for key in model_keys
        if not any(has_key(model, key.split(".")) for model in models.items.values())
    ] == []
    result = load(PEERS_FILE)
    assert result.warnings == ()
    assert not [text for text in result.differences if "\n" in text]
    assert [text.split(": ")[0] for text in result.differences] == [
        "memory",
        "sleep",
        "routing.scheduler.settings.fifo.priority",
        "models.*.concurrencyLimit",
        "sendLoadingState",
        "models.*.timeouts.expectContinue",
        "models.*.timeouts.idleConn",
        "healthCheckTimeout",
        "GET /props?model=…",
        "peers.*.timeouts.responseHeader",
        "apiKeys",
        "hooks.on_startup.preload",
        "logRequests",
    ]
