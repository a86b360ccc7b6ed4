"""From the text of a configuration file to `Config`, or to an error that says where and why.

The order is that of peers: environment variables in the text, YAML, global macros, `startPort`,
then the models by sorted id with their macros and ports, then what concerns several of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from msgspec import structs

from llmsnap.config.decode import Decoder, table
from llmsnap.config.environment import substitute
from llmsnap.config.faults import Fault, located
from llmsnap.config.macros import Budget, Expander, MacroValue, read_macros, uses_below
from llmsnap.config.memory import check_memory
from llmsnap.config.models import ModelReader, unknown_macro
from llmsnap.config.naming import finish_aliases, finish_preload
from llmsnap.config.notyet import UNREAD, note_sections
from llmsnap.config.routing import finish_routing
from llmsnap.config.schema import Config, Hooks, ModelConfig, OnStartup
from llmsnap.config.settings import finish_settings
from llmsnap.config.yamlnodes import MapNode, Node, parse
from llmsnap.errors import ConfigError

_KNOWN: Final = {field.encode_name for field in structs.fields(Config)} | {*UNREAD}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and what in it may be a mistake."""

    config: Config
    warnings: tuple[str, ...]
    """Each with file, line and key path, by line."""
    name: str = "config.yaml"
    """What the file is called in messages."""


def load(path: Path) -> Loaded:
    """Read the file at `path`. Raises ConfigError."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: can't be read: {reason}; check the path") from None
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        raise ConfigError(message) from None
    return loads(text, name=str(path))


def loads(
    text: str, *, name: str = "config.yaml", environ: Mapping[str, str] = os.environ
) -> Loaded:
    """Read `text`; `name` is what messages call it. Raises ConfigError."""
    decoder = Decoder()
    try:
        config = _read(text, environ, decoder)
    except Fault as fault:
        raise ConfigError(located(name, fault.line, fault.path, str(fault))) from None
    notes = sorted(decoder.notes, key=lambda note: note.line)
    warnings = tuple(located(name, note.line, note.path, note.text) for note in notes)
    return Loaded(config, warnings, name)


def _read(text: str, environ: Mapping[str, str], decoder: Decoder) -> Config:
    root = table(parse(substitute(text.removeprefix("\ufeff"), environ)), "")
    macros = read_macros(root.get("macros"), "macros")
    budget = Budget()
    settings = _settings(root, macros, budget, decoder)
    reader = ModelReader(settings, macros, budget, decoder)
    models = _models(root, reader)
    config = structs.replace(settings, macros=macros, models=finish_aliases(models, root, decoder))
    preload = finish_preload(config, root, decoder)
    config = structs.replace(config, hooks=Hooks(on_startup=OnStartup(preload=preload)))
    config = finish_routing(config, root, decoder)
    check_memory(config, root, decoder)
    return config


def _settings(
    root: MapNode, macros: Mapping[str, MacroValue], budget: Budget, decoder: Decoder
) -> Config:
    """Return all but the models and the macros."""
    note_sections(root, decoder)
    expander = Expander(macros, budget)
    items: dict[str, Node] = {}
    for key, node in root.items.items():
        if key in ("macros", "models") or key.startswith("x-"):
            continue
        if key in _KNOWN:
            node = expander.tree(node, key)
            for name, line, path in uses_below(node, key):
                raise Fault(unknown_macro(name, macros), line=line, path=path)
        if key not in UNREAD:
            items[key] = node
    body = replace(root, items=items)
    return finish_settings(decoder.struct(Config, body, ""), body, decoder)


def _models(root: MapNode, reader: ModelReader) -> dict[str, ModelConfig]:
    """Return the models in the order of their ids, as bytes."""
    models = {}
    node = root.get("models")
    entries = table(node, "models") if node else MapNode({}, {}, root.line)
    for id_ in sorted(entries.items):
        line = entries.lines[id_]
        if not id_.strip():
            raise Fault("a model's id is empty; give it a name", line=line, path="models")
        models[id_] = reader.read(id_, entries.items[id_], line=line)
    return models
