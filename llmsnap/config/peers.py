"""Whether the entries under `peers` make sense, and by which names their models are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import structs

from llmsnap.config.faults import Fault
from llmsnap.config.finish import tidied_filters
from llmsnap.config.schema import Config
from llmsnap.config.sections import PeerConfig
from llmsnap.config.upstreams import url_fault
from llmsnap.config.yamlnodes import MapNode, line_of


class PeerModel(NamedTuple):
    """A model of another machine."""

    peer: str
    model: str
    """As the peer calls it."""

    @property
    def name(self) -> str:
        """Its full name here."""
        return f"{self.peer}/{self.model}"


def peer_models(peers: Mapping[str, PeerConfig]) -> dict[str, PeerModel]:
    """Return the models of all peers by their full names."""
    found = [PeerModel(id_, model) for id_, peer in peers.items() for model in peer.models]
    return {model.name: model for model in found}


def peer_names(peers: Mapping[str, PeerConfig]) -> dict[str, PeerModel]:
    """Return the models of all peers by every name that they have.

    That is the full one, and the bare one where only one peer has such a model.
    """
    full = peer_models(peers)
    offers = Counter(model.model for model in full.values())
    bare = {model.model: model for model in full.values() if offers[model.model] == 1}
    return bare | full


def finish_peers(config: Config, root: MapNode) -> dict[str, PeerConfig]:
    """Return the peers with tidy filters. Raises Fault for what can't be meant."""
    taken = _taken(config)
    seen: set[str] = set()
    for id_, peer in config.peers.items():
        path = f"peers.{id_}"
        if not id_.strip():
            raise Fault("a peer's id is empty; give it a name", line=_line(root), path="peers")
        if fault := url_fault(peer.proxy):
            raise Fault(fault, line=_line(root, id_, "proxy"), path=f"{path}.proxy")
        if not peer.models:
            message = "a peer needs models; list those that it is asked for"
            raise Fault(message, line=_line(root, id_, "models"), path=f"{path}.models")
        for index, model in enumerate(peer.models):
            line = _line(root, id_, "models", index)
            name = f"{id_}/{model}"
            if not model.strip():
                fault = "a model's name is empty; take it out"
            elif name in seen:
                fault = f"qualified peer name {name!r} is there twice; take one of them out"
            elif name in taken:
                fault = f"{taken[name]} conflicts with qualified peer name {name!r}; rename one"
            else:
                seen.add(name)
                continue
            raise Fault(fault, line=line, path=f"{path}.models[{index}]")
    return {
        id_: structs.replace(peer, filters=tidied_filters(peer.filters))
        for id_, peer in config.peers.items()
    }


def _taken(config: Config) -> dict[str, str]:
    """Return what else there is that requests may name, each with what it is."""
    pins = {pin: "a profile's pin" for profile in config.profiles.values() for pin in profile.pins}
    aliases = dict.fromkeys(config.names(), "an alias")
    selectors = dict.fromkeys(config.selectors, "a selector")
    return pins | selectors | aliases | dict.fromkeys(config.models, "a model's id")


def _line(root: MapNode, *keys: str | int) -> int:
    return line_of(root, "peers", *keys)
