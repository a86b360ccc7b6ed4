"""Which names mean which model: aliases, names of setParamsByID, the preload list."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from llmsnap.config.decode import Decoder
from llmsnap.config.faults import Fault, nearest
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.yamlnodes import MapNode, line_of


def finish_aliases(
    models: Mapping[str, ModelConfig], root: MapNode, decoder: Decoder
) -> dict[str, ModelConfig]:
    """Return `models` with the names of setParamsByID among their aliases.

    Raises Fault when a name would mean two models. An alias that is also a model's id is kept, and
    noted: the id wins.
    """
    owners = _owners(models, root, decoder)
    finished = {}
    for id_, model in models.items():
        aliases = [alias for alias in model.aliases if alias]
        for name in model.filters.set_params_by_id:
            if name == id_ or name in aliases:
                continue
            where = (root, "models", id_, "filters", "setParamsByID", name)
            path = f"models.{id_}.filters.setParamsByID.{name}"
            if name in models:
                message = f"key {name!r} conflicts with an existing model id; choose another name"
                raise Fault(message, line=line_of(*where), path=path)
            if name in owners:
                message = (
                    f"duplicate alias {name!r}, already used by model {owners[name]!r}; "
                    "choose another name"
                )
                raise Fault(message, line=line_of(*where), path=path)
            owners[name] = id_
            aliases.append(name)
        finished[id_] = structs.replace(model, aliases=tuple(aliases))
    return finished


def finish_preload(config: Config, root: MapNode, decoder: Decoder) -> tuple[str, ...]:
    """Return the ids of the models to preload; unknown names are left out with a note."""
    names = config.names()
    ids = []
    for index, entry in enumerate(config.hooks.on_startup.preload):
        name = entry.strip()
        if name in names:
            ids.append(names[name])
            continue
        suggestion = nearest(name, names)
        remedy = f"did you mean {suggestion!r}?" if suggestion else "it is ignored"
        line = line_of(root, "hooks", "on_startup", "preload", index)
        path = f"hooks.on_startup.preload[{index}]"
        decoder.note(f"{name!r} isn't a model or alias; {remedy}", line=line, path=path)
    return tuple(ids)


def finish_default(config: Config, root: MapNode) -> str:
    """Return the id of the default model; empty: there is none. Raises Fault."""
    if not config.default:
        return ""
    names = config.names()
    if config.default not in names:
        suggestion = nearest(config.default, names)
        remedy = f"did you mean {suggestion!r}?" if suggestion else "define it under models"
        message = f"no model or alias {config.default!r}; {remedy}"
        raise Fault(message, line=line_of(root, "default"), path="default")
    return names[config.default]


def _owners(models: Mapping[str, ModelConfig], root: MapNode, decoder: Decoder) -> dict[str, str]:
    owners: dict[str, str] = {}
    for id_, model in models.items():
        for index, alias in enumerate(model.aliases):
            line = line_of(root, "models", id_, "aliases", index)
            path = f"models.{id_}.aliases[{index}]"
            if alias in owners:
                message = (
                    f"duplicate alias {alias!r}, already used by model {owners[alias]!r}; "
                    "take one of them out"
                )
                raise Fault(message, line=line, path=path)
            if not alias:
                decoder.note("an empty alias is ignored; take it out", line=line, path=path)
                continue
            owners[alias] = id_
            if alias in models:
                message = f"alias {alias!r} has no effect, for a model has that id; rename it"
                decoder.note(message, line=line, path=path)
    return owners
