"""Keys that are read and checked, but that nothing honours yet: whoever sets one is told."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from llmsnap.config.decode import Decoder
from llmsnap.config.schema import Config
from llmsnap.config.yamlnodes import MapNode, joined, line_of

_GLOBAL: Final = {
    "performance": "performance",
}

_MESSAGE: Final = "not supported yet and ignored"


def note_settings(config: Config, root: MapNode, decoder: Decoder) -> None:
    """Note the global keys that ask for more than their defaults do."""
    _note(_changed(config, Config(), _GLOBAL), root, "", decoder)


def _changed(found: Struct, default: Struct, fields: dict[str, str]) -> list[str]:
    """Return the keys whose value isn't the default, nor one that turns a feature off."""
    return [
        key
        for key, field in fields.items()
        if (value := getattr(found, field)) and value != getattr(default, field)
    ]


def _note(keys: Collection[str], node: MapNode, path: str, decoder: Decoder) -> None:
    for key in keys:
        decoder.note(_MESSAGE, line=line_of(node, key), path=joined(path, key))
