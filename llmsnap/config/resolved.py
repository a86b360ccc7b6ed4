"""A configuration after macros and defaults, to look at: as a document and as table rows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from llmsnap.config.argv import split_command
from llmsnap.config.expressions import Name, leaves
from llmsnap.config.loader import Loaded
from llmsnap.config.macros import MacroValue
from llmsnap.config.matrix import ordered_sets
from llmsnap.config.memory import declared_need
from llmsnap.config.quantities import size_text
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.secrets import (
    BLANK,
    blank,
    blank_argv,
    blank_assignment,
    blank_command,
    blank_within,
    is_telling,
    names_secret,
    secret_values,
    secrets_within,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model, in words."""

    model: str
    aliases: str
    group: str
    memory: str
    ttl: str
    proxy: str
    command: str


def resolved(loaded: Loaded) -> dict[str, Any]:
    """Return `loaded` under the file's own key names, with secrets blanked.

    Each model has its `argv` besides, `preload` stands at the top, and `warnings` are told.
    """
    config = loaded.config
    document: dict[str, Any] = msgspec.to_builtins(config)
    document["models"] = {
        id_: {"argv": blank_argv(split_command(model.cmd)), **document["models"][id_]}
        for id_, model in config.models.items()
    }
    for model in document["models"].values():
        model["cmd"] = blank_command(model["cmd"])
        model["cmdStop"] = blank_command(model["cmdStop"])
        model["env"] = [blank_assignment(entry) for entry in model["env"]]
        model["macros"] = _macros(model["macros"])
        model["metadata"] = blank_within(model["metadata"])
    for selector in document["selectors"].values():
        selector["metadata"] = blank_within(selector["metadata"])
    document["macros"] = _macros(document["macros"])
    document["apiKeys"] = [BLANK] * len(config.api_keys)
    for peer in document["peers"].values():
        peer["apiKey"] = BLANK if peer["apiKey"] else ""
    document["preload"] = document.pop("hooks")["on_startup"]["preload"]
    document["warnings"] = list(loaded.warnings)
    document["differences"] = list(loaded.differences)
    blanked: dict[str, Any] = _blanked(document, all_secrets(config))
    return blanked


def all_secrets(config: Config) -> tuple[str, ...]:
    """Return the secrets of all models, the keys that clients send, what is named as a secret."""
    found = set(config.api_keys)
    for model in config.models.values():
        found.update(secret_values(split_command(model.cmd), model.env))
        found.update(secret_values(split_command(model.cmd_stop), ()))
        found.add(urlsplit(model.proxy).password or "")
        found.update(_secret_macros(model.macros))
        found.update(secrets_within(model.metadata))
    for selector in config.selectors.values():
        found.update(secrets_within(selector.metadata))
    for peer in config.peers.values():
        found |= {peer.api_key, urlsplit(peer.proxy).password or ""}
    found.update(_secret_macros(config.macros))
    return tuple(sorted(filter(is_telling, found)))


def rows(loaded: Loaded) -> list[Row]:
    """Return a row a model, in the order of the ids, with secrets blanked."""
    config = loaded.config
    groups = _groups(config)
    secrets = all_secrets(config)
    return [
        Row(
            model=f"{id_} (pinned)" if model.pinned else id_,
            aliases=", ".join(model.aliases),
            group=groups.get(id_, "none"),
            memory=_memory(model, config),
            ttl=f"{model.ttl_s} s" if model.ttl_s else "never",
            proxy=blank(model.proxy, secrets),
            command=blank(_command(model), secrets),
        )
        for id_, model in config.models.items()
    ]


def sentences(loaded: Loaded) -> Iterator[str]:
    """Yield what the file says besides of what may be asked for, and what goes together."""
    config = loaded.config
    for name, text in config.matrix.sets.items():
        yield f"matrix {name}: {text}"
    if config.default:
        yield f"default: {config.default}"
    for id_, peer in config.peers.items():
        where = blank(peer.proxy, all_secrets(config))
        yield f"peer {id_} at {where}: {', '.join(f'{id_}/{model}' for model in peer.models)}"
    for name, selector in config.selectors.items():
        yield f"selector {name} ({selector.strategy}): {', '.join(selector.targets)}"
    for name, profile in config.profiles.items():
        pins = (f"{pin} -> {target or 'nobody'}" for pin, target in profile.pins.items())
        yield f"profile {name}: {', '.join(pins)}"


def _groups(config: Config) -> dict[str, str]:
    """Return the group of each model; with a matrix, the sets that name it."""
    if not config.matrix.sets:
        return {id_: name for name, group in config.groups.items() for id_ in group.members}
    named: dict[str, list[str]] = {}
    for name, expression in ordered_sets(config.matrix).items():
        for leaf in leaves(expression):
            if isinstance(leaf, Name) and name not in named.setdefault(leaf.name, []):
                named[leaf.name].append(name)
    return {id_: ", ".join(names) for id_, names in named.items()}


def _command(model: ModelConfig) -> str:
    return shlex.join(blank_argv(split_command(model.cmd))).replace(f"'{BLANK}'", BLANK)


def _memory(model: ModelConfig, config: Config) -> str:
    need = declared_need(model, config.memory.devices) or {}
    return ", ".join(f"{device} {size_text(size)}" for device, size in need.items())


def _macros(macros: dict[str, Any]) -> dict[str, Any]:
    """Return `macros` without the texts whose name speaks of a secret."""
    return {
        name: BLANK if isinstance(value, str) and names_secret(name) else value
        for name, value in macros.items()
    }


def _secret_macros(macros: Mapping[str, MacroValue]) -> set[str]:
    return {
        value for name, value in macros.items() if isinstance(value, str) and names_secret(name)
    }


def _blanked(value: Any, secrets: Sequence[str]) -> Any:
    match value:
        case str():
            return blank(value, secrets)
        case list() | tuple():
            return [_blanked(item, secrets) for item in value]
        case dict():
            return {key: _blanked(item, secrets) for key, item in value.items()}
    return value
