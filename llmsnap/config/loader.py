"""From the text of configuration files to `Config`, or to an error that says where and why.

The order is that of peers: environment variables in the text, YAML, global macros, `startPort`,
then the models by sorted id with their macros and ports, then what concerns several of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from msgspec import structs

from llmsnap.config.decode import Decoder, table
from llmsnap.config.differences import differences
from llmsnap.config.environment import substitute
from llmsnap.config.faults import Fault, Line, located
from llmsnap.config.macros import Budget, Expander, MacroValue, read_macros, uses_below
from llmsnap.config.memory import check_memory
from llmsnap.config.models import ModelReader, Ports, unknown_macro
from llmsnap.config.naming import finish_aliases, finish_default, finish_preload
from llmsnap.config.older import modern_peers, refuse_older_profiles
from llmsnap.config.peers import finish_peers
from llmsnap.config.routing import finish_routing
from llmsnap.config.schema import Config, Hooks, ModelConfig, OnStartup
from llmsnap.config.selectors import check_profiles, check_selectors
from llmsnap.config.settings import finish_settings
from llmsnap.config.sources import merged, stamped, texts_of
from llmsnap.config.yamlnodes import MapNode, Node, parse
from llmsnap.errors import ConfigError

_KNOWN: Final = {field.encode_name for field in structs.fields(Config)}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and what in it may be a mistake."""

    config: Config
    warnings: tuple[str, ...]
    """Each with file, line and key path, by line."""
    name: str = "config.yaml"
    """What the file is called in messages; several with commas between them."""
    differences: tuple[str, ...] = ()
    """What of it has another effect with llama-swap, each behind its key."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """What `${PORT}` is for each model that uses it."""


def load(*paths: Path, running: Loaded | None = None) -> Loaded:
    """Read what is at `paths` as one; see `texts_of`. Raises ConfigError.

    `running` is what runs now: its models keep their ports, unless `startPort` is another.
    """
    return loads_all(texts_of(paths), running=running)


def loads(
    text: str, *, name: str = "config.yaml", environ: Mapping[str, str] = os.environ
) -> Loaded:
    """Read `text`; `name` is what messages call it. Raises ConfigError."""
    return loads_all([(name, text)], environ=environ)


def loads_all(
    sources: Sequence[tuple[str, str]],
    *,
    environ: Mapping[str, str] = os.environ,
    running: Loaded | None = None,
) -> Loaded:
    """Read several texts, each behind its name, as one; see `load`. Raises ConfigError."""
    decoder = Decoder()
    names = [name for name, _ in sources]
    try:
        roots = [_root(name, text, environ) for name, text in sources]
        root = roots[0] if len(roots) == 1 else merged(roots)
        config, ports = _read(root, decoder, running)
    except Fault as fault:
        raise ConfigError(located(names[0], fault.line, fault.path, str(fault))) from None
    places = {name: place for place, name in enumerate(names)}
    notes = sorted(
        decoder.notes, key=lambda note: (places.get(getattr(note.line, "file", ""), 0), note.line)
    )
    warnings = tuple(located(names[0], note.line, note.path, note.text) for note in notes)
    return Loaded(config, warnings, ", ".join(names), differences(config, root), ports.given)


def _root(name: str, text: str, environ: Mapping[str, str]) -> MapNode:
    """Return the mapping that the file `name` is, with lines that know it. Raises Fault."""
    try:
        node = parse(substitute(text.removeprefix("\ufeff"), environ))
        return table(stamped(node, name), "")
    except Fault as fault:
        fault.line = Line(fault.line, name)
        raise


def _read(root: MapNode, decoder: Decoder, running: Loaded | None) -> tuple[Config, Ports]:
    refuse_older_profiles(root)
    macros = read_macros(root.get("macros"), "macros")
    budget = Budget()
    settings = _settings(root, macros, budget, decoder)
    ports = _ports(settings, running)
    reader = ModelReader(settings, macros, budget, decoder, ports)
    models = _models(root, reader)
    config = structs.replace(settings, macros=macros, models=finish_aliases(models, root, decoder))
    preload = finish_preload(config, root, decoder)
    hooks = Hooks(on_startup=OnStartup(preload=preload))
    config = structs.replace(config, hooks=hooks, default=finish_default(config, root))
    config = finish_routing(config, root, decoder)
    config = structs.replace(config, peers=finish_peers(config, root))
    check_selectors(config, root)
    check_profiles(config, root)
    check_memory(config, root, decoder)
    return config, ports


def _ports(settings: Config, running: Loaded | None) -> Ports:
    first = settings.start_port
    is_as_before = running is not None and running.config.start_port == first
    return Ports(running.ports if running is not None and is_as_before else {}, first)


def _settings(
    root: MapNode, macros: Mapping[str, MacroValue], budget: Budget, decoder: Decoder
) -> Config:
    """Return all but the models and the macros."""
    expander = Expander(macros, budget)
    items: dict[str, Node] = {}
    for key, node in root.items.items():
        if key in ("macros", "models") or key.startswith("x-"):
            continue
        if key in _KNOWN:
            node = expander.tree(node, key)
            for name, line, path in uses_below(node, key):
                raise Fault(unknown_macro(name, macros), line=line, path=path)
        items[key] = modern_peers(node) if key == "peers" else node
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
