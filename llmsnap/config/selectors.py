"""Whether selectors and profiles make sense: names that mean other names."""

from __future__ import annotations

from collections.abc import Collection

from llmsnap.config.expressions import combinations
from llmsnap.config.faults import Fault, nearest
from llmsnap.config.matrix import ordered_sets
from llmsnap.config.peers import peer_models, peer_names
from llmsnap.config.schema import Config
from llmsnap.config.sections import DEFAULT_GROUP, SelectorConfig
from llmsnap.config.yamlnodes import MapNode, line_of


def check_selectors(config: Config, root: MapNode) -> None:
    """Raise Fault for a selector that can't be meant. Peers, groups and matrix are finished."""
    for name, selector in config.selectors.items():
        path = f"selectors.{name}"
        line = line_of(root, "selectors", name)
        if not name.strip():
            raise Fault("a selector's name is empty; give it one", line=line, path="selectors")
        if taken := _taken_by(name, config):
            raise Fault(f"{name!r} is {taken} already; rename one of them", line=line, path=path)
        targets = f"{path}.targets"
        if not selector.targets:
            message = "a selector needs targets; list at least one model"
            raise Fault(message, line=line_of(root, "selectors", name, "targets"), path=targets)
        for index, target in enumerate(selector.targets):
            if fault := _target_fault(target, selector, config):
                line = line_of(root, "selectors", name, "targets", index)
                raise Fault(fault, line=line, path=f"{targets}[{index}]")
        if selector.strategy == "spillover" and (fault := _spillover_fault(selector, config)):
            line = line_of(root, "selectors", name, "targets")
            raise Fault(fault, line=line, path=targets)


def check_profiles(config: Config, root: MapNode) -> None:
    """Raise Fault for a profile that can't be meant."""
    known = {**config.names(), **peer_names(config.peers), **config.selectors}
    for name, profile in config.profiles.items():
        line, path = line_of(root, "profiles", name), f"profiles.{name}"
        if not name.strip():
            raise Fault("a profile's name is empty; give it one", line=line, path="profiles")
        if not profile.pins:
            message = "a profile needs pins; write at least one"
            raise Fault(message, line=line, path=f"{path}.pins")
        for pin, target in profile.pins.items():
            line, where = line_of(root, "profiles", name, "pins", pin), f"{path}.pins.{pin}"
            if not pin.strip():
                raise Fault("a pin's name is empty; give it one", line=line, path=f"{path}.pins")
            if target and target not in known:
                raise Fault(_unknown(target, known), line=line, path=where)


def _taken_by(name: str, config: Config) -> str:
    if name in config.models:
        return "a model's id"
    if name in config.names():
        return "an alias"
    return "a peer's model" if name in peer_models(config.peers) else ""


def _target_fault(target: str, selector: SelectorConfig, config: Config) -> str:
    local, remote = config.names(), peer_names(config.peers)
    if target in local:
        return ""
    if target in config.selectors:
        return f"{target!r} is a selector itself; list its models"
    if target not in remote:
        return _unknown(target, {**local, **remote})
    if selector.strategy == "warm":
        return f"{target!r} is a peer's, and warm knows only of models here; take it out"
    return ""


def _spillover_fault(selector: SelectorConfig, config: Config) -> str:
    local, remote = config.names(), peer_names(config.peers)
    meant = [
        local[target] if target in local else remote[target].name for target in selector.targets
    ]
    for id_ in meant:
        if meant.count(id_) > 1:
            return f"two targets are {id_!r}; take one of them out"
    here = [id_ for id_ in meant if id_ in config.models]
    if len(here) < 2 or _may_be_together(here, config):
        return ""
    if config.matrix.sets:
        return f"no set of the matrix has {', '.join(here)} together; write one"
    return f"{', '.join(here)} must share a group with swap: false to be up together"


def _may_be_together(ids: Collection[str], config: Config) -> bool:
    """Whether groups or matrix allow `ids` together; where only memory counts, they may be."""
    if config.matrix.sets:
        bits = {id_: 1 << place for place, id_ in enumerate(ids)}
        return (1 << len(bits)) - 1 in combinations(ordered_sets(config.matrix), bits)
    if config.memory.mode == "auto" and not config.groups.keys() - {DEFAULT_GROUP}:
        return True
    return any(not group.swap and set(ids) <= {*group.members} for group in config.groups.values())


def _unknown(name: str, known: Collection[str]) -> str:
    suggestion = nearest(name, known)
    remedy = f"did you mean {suggestion!r}?" if suggestion else "define it under models or peers"
    return f"no model or alias {name!r}; {remedy}"
