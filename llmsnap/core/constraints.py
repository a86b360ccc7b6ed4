"""Who may be awake beside whom, apart from memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from llmsnap.config.matrix import costs, ordered_sets
from llmsnap.config.schema import Config
from llmsnap.config.sections import DEFAULT_GROUP, GroupConfig
from llmsnap.core.matrix import MatrixRules


class Constraints(Protocol):
    """A rule about which models exclude each other."""

    def forced_out(self, target: str, others: Collection[str]) -> frozenset[str]:
        """Return those of `others` that must be gone before `target` may load."""
        ...


class Free:
    """Everybody may be awake beside everybody."""

    def forced_out(self, target: str, others: Collection[str]) -> frozenset[str]:
        """Return nobody."""
        return frozenset()


class GroupRules:
    """The policy of `groups:`, as llama-swap has it.

    - Within a group with `swap`, members replace each other.
    - A member of a group with `exclusive` forces out the members of all groups that aren't
      `persistent`. It is asymmetric on purpose: a member of a group without `exclusive` leaves the
      members of exclusive groups alone.
    - A pinned model, and one in no group, is outside of all this: it forces nobody out, and nobody
      forces it out.
    """

    def __init__(self, groups: Mapping[str, GroupConfig], group_of: Mapping[str, str]) -> None:
        self._groups = groups
        self._group_of = group_of

    @classmethod
    def from_config(cls, groups: Mapping[str, GroupConfig], pinned: Collection[str]) -> GroupRules:
        """Build the rules out of `groups:`; `pinned` models take no part."""
        group_of = {
            member: name
            for name, group in groups.items()
            for member in group.members
            if member not in pinned
        }
        return cls(groups, group_of)

    def forced_out(self, target: str, others: Collection[str]) -> frozenset[str]:
        """Return those of `others` that must be gone before `target` may load."""
        own = self._group_of.get(target)
        if own is None:
            return frozenset()
        return frozenset(
            other for other in others if other != target and self._excludes(own, other)
        )

    def _excludes(self, own: str, other: str) -> bool:
        theirs = self._group_of.get(other)
        if theirs is None:
            return False
        if theirs == own:
            return self._groups[own].swap
        return self._groups[own].exclusive and not self._groups[theirs].persistent


def constraints_for(config: Config, *, counted: bool) -> Constraints:
    """Return what the file says about who excludes whom; `counted`: memory has capacities.

    A matrix takes the place of groups. Where memory has capacities and no groups are written,
    memory alone decides. Otherwise the automatic group of all models in no other counts, too; its
    `swap` and `exclusive` mean one model at a time.
    """
    pinned = [name for name, model in config.models.items() if model.pinned]
    if config.matrix.sets:
        return MatrixRules(ordered_sets(config.matrix), costs(config.matrix), pinned)
    groups = dict(config.groups)
    if counted and not groups.keys() - {DEFAULT_GROUP}:
        return Free()
    if DEFAULT_GROUP not in groups:
        grouped = {member for group in groups.values() for member in group.members}
        others = tuple(name for name in config.models if name not in grouped)
        groups[DEFAULT_GROUP] = GroupConfig(members=others)
    return GroupRules.from_config(groups, pinned)
