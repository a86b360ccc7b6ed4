"""The JSON Schema of the configuration file, for editors: made from the structs."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import structs

from llmsnap.config import schema as declared
from llmsnap.config import sections

_MACRO_PATTERN: Final = r"\$\{"
"""A value of any type may be written as a macro, which is text to an editor."""


def schema() -> dict[str, Any]:
    """Return the schema as a document of JSON Schema 2020-12."""
    definitions: dict[str, Any] = msgspec.json.schema(declared.Config)["$defs"]
    descriptions = field_descriptions()
    for name, definition in definitions.items():
        definition.pop("title")
        if not definition["required"]:
            del definition["required"]
        definition["additionalProperties"] = False
        for key, value in definition["properties"].items():
            definition["properties"][key] = _tidied(value, descriptions[name, key])
    definitions["Filters"]["properties"]["strip_params"] = {
        "description": "Older spelling of `stripParams`, used when that is empty.",
        "type": "string",
    }
    top = definitions.pop("Config")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of llmsnap",
        **top,
        "patternProperties": {"^x-": {"description": "Anything, such as YAML anchors."}},
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text() -> str:
    """Return the schema as it is kept in configs/schema.json."""
    return json.dumps(schema(), indent=2) + "\n"


def field_descriptions() -> Mapping[tuple[str, str], str]:
    """Return what the source says below each field, by struct and by key in the file."""
    found = {}
    for module in (declared, sections):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                fields = structs.fields(getattr(module, node.name))
                keys = {field.name: field.encode_name for field in fields}
                for name, text in _documented(node):
                    found[node.name, keys[name]] = text
    return found


def _documented(class_: ast.ClassDef) -> list[tuple[str, str]]:
    """Return each field that is followed by a string, with that string."""
    pairs = []
    for field, below in zip(class_.body, class_.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                pairs.append((name, text))
    return pairs


def _tidied(value: dict[str, Any], description: str) -> dict[str, Any]:
    """Return the schema of one key: described, and open to macros."""
    value = _open_to_macros(value)
    unit = f" {value.pop('description')}" if "description" in value else ""
    return {"description": description + unit, **value}


def _open_to_macros(value: dict[str, Any]) -> dict[str, Any]:
    """Return `value` with text allowed where a number or a bool is asked for."""
    if value.pop("writtenAs", None):
        return {"type": "string", "default": ""}
    if value.get("type") in ("integer", "number", "boolean"):
        return {"pattern": _MACRO_PATTERN, **value, "type": [value["type"], "string"]}
    if "anyOf" in value:
        kinds = [branch.get("type") for branch in value["anyOf"]]
        if "string" not in kinds:
            value["anyOf"] = [_open_to_macros(branch) for branch in value["anyOf"]]
    if isinstance(below := value.get("additionalProperties"), dict):
        value["additionalProperties"] = _open_to_macros(below)
    return value
