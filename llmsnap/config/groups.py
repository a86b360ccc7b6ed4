"""Which models are in which group."""

from __future__ import annotations

from collections.abc import Iterator

from llmsnap.config.decode import Decoder
from llmsnap.config.faults import Fault, nearest
from llmsnap.config.schema import Config
from llmsnap.config.sections import DEFAULT_GROUP, GroupConfig
from llmsnap.config.yamlnodes import MapNode, line_of


def finish_groups(
    config: Config, root: MapNode, decoder: Decoder, where: tuple[str, ...] = ("groups",)
) -> dict[str, GroupConfig]:
    """Return the groups with the automatic one, which holds the models of no other.

    A group that the file names `(default)` loses to the automatic one, and its members are then in
    no group at all: peers do the same. `where` is the path of the groups in the file. Raises Fault.
    """
    taken: dict[str, str] = {}
    for group, member, line, path in _members(config, root, where):
        if member not in config.models:
            raise Fault(_unknown(member, config), line=line, path=path)
        if taken.get(member) == group:
            message = f"duplicate member {member!r}; take one of them out"
            raise Fault(message, line=line, path=path)
        if member in taken:
            groups = f"{taken[member]} and {group}"
            message = f"model {member!r} is used in multiple groups, {groups}; keep one"
            raise Fault(message, line=line, path=path)
        taken[member] = group
    if DEFAULT_GROUP in config.groups:
        message = (
            f"{DEFAULT_GROUP!r} is the automatic group, so this one is ignored and its members "
            "are in no group; give it another name"
        )
        line = line_of(root, *where, DEFAULT_GROUP)
        decoder.note(message, line=line, path=".".join((*where, DEFAULT_GROUP)))
    rest = tuple(id_ for id_ in config.models if id_ not in taken)
    return {**config.groups, DEFAULT_GROUP: GroupConfig(members=rest)}


def _members(
    config: Config, root: MapNode, where: tuple[str, ...]
) -> Iterator[tuple[str, str, int, str]]:
    """Yield each member: its group, its name, its line and its path."""
    for name, group in config.groups.items():
        for index, member in enumerate(group.members):
            line = line_of(root, *where, name, "members", index)
            yield name, member, line, f"{'.'.join(where)}.{name}.members[{index}]"


def _unknown(member: str, config: Config) -> str:
    names = config.names()
    if member in names:
        return f"{member!r} is an alias; write the model's id, {names[member]!r}"
    suggestion = nearest(member, config.models)
    remedy = f"did you mean {suggestion!r}?" if suggestion else "define it under models"
    return f"no model has the id {member!r}; {remedy}"
