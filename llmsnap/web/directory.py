"""Which models requests can reach, on this machine and on peers, by every name that they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from llmsnap.config.peers import PeerModel, peer_models, peer_names
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.web.delivery import Manner
from llmsnap.web.filters import BodyFilters
from llmsnap.web.serving import Route

MannerOf = Callable[[str], Manner]
"""How the answers of the model of that id are delivered."""

_VIA: Final = "1.1 %s"


def routes_for(config: Config, manner_of: MannerOf, mark: str) -> dict[str, Route]:
    """Return the way to each model, by id; peers' go by their full names.

    `mark` is what this proxy calls itself towards peers.
    """
    local = {
        id_: Route(
            id_,
            model,
            BodyFilters(model),
            manner_of(id_),
            drains=model.on_client_disconnect == "drain",
            renames=model.response_model_name == "requested",
        )
        for id_, model in config.models.items()
    }
    via = (_VIA % mark).encode()
    remote = {
        name: _peer_route(name, model, config, manner_of, via)
        for name, model in peer_models(config.peers).items()
    }
    return remote | local


def all_names(config: Config) -> dict[str, str]:
    """Return every name that a request may use, with the id that it means; local names win."""
    remote = {name: model.name for name, model in peer_names(config.peers).items()}
    return remote | config.names()


def _peer_route(
    name: str, model: PeerModel, config: Config, manner_of: MannerOf, via: bytes
) -> Route:
    peer = config.peers[model.peer]
    as_model = ModelConfig(use_model_name=model.model, filters=peer.filters, timeouts=peer.timeouts)
    filters = BodyFilters(as_model)
    return Route(name, as_model, filters, manner_of(name), drains=False, renames=False, via=via)
