"""Models of other machines: lent as if they were always up, for their machine does the waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

from llmsnap.config.peers import peer_models
from llmsnap.config.sections import PeerConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import NO_WAIT, ModelView
from llmsnap.runtime.lease import Lease, Tickets
from llmsnap.runtime.plan import Endpoint
from llmsnap.runtime.upstream import Upstream


class Lends(Protocol):
    """Who lends the models of this machine."""

    def lease(
        self,
        model: str,
        *,
        limited: bool = True,
        is_helper: bool | None = None,
        is_use: bool = True,
    ) -> Lease: ...

    def upstream(self, model: str) -> Upstream | None: ...

    def view(self, model: str) -> ModelView: ...

    def stalled(self, model: str, generation: int) -> None: ...

    def deaf(self, model: str, generation: int) -> None: ...

    def watch(self, callback: Callable[[ModelView, State], None]) -> Callable[[], None]: ...


class PeerLease(Lease):
    """The right to send one request to a peer: nobody waits for it here, and nothing ends it."""

    __slots__ = ()

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


class Network:
    """Lends models of this machine and of its peers, which go by their full names."""

    def __init__(self, local: Lends, peers: Mapping[str, PeerConfig]) -> None:
        self._local = local
        self._upstreams = {
            model.name: peer_upstream(model.name, peers[model.peer])
            for model in peer_models(peers).values()
        }
        self._tickets = Tickets(lambda _: None)

    def lease(
        self,
        model: str,
        *,
        limited: bool = True,
        is_helper: bool | None = None,
        is_use: bool = True,
    ) -> Lease:
        """Return a block within which `model` may be used."""
        upstream = self._upstreams.get(model)
        if upstream is None:
            return self._local.lease(model, limited=limited, is_helper=is_helper, is_use=is_use)
        lease = PeerLease(self._tickets, 0, model, limited)
        lease.grant(upstream, NO_WAIT)
        return lease

    def upstream(self, model: str) -> Upstream | None:
        """Return where `model` is; None for one of this machine that isn't ready."""
        return self._upstreams.get(model) or self._local.upstream(model)

    def view(self, model: str) -> ModelView:
        """Return a model of this machine as it is now; raise ModelNotFound for others."""
        return self._local.view(model)

    def stalled(self, model: str, generation: int) -> None:
        """Pass the word on; a peer's processes are its own affair."""
        if model not in self._upstreams:
            self._local.stalled(model, generation)

    def deaf(self, model: str, generation: int) -> None:
        """Pass the word on, likewise."""
        if model not in self._upstreams:
            self._local.deaf(model, generation)

    def watch(self, callback: Callable[[ModelView, State], None]) -> Callable[[], None]:
        """Watch the models of this machine."""
        return self._local.watch(callback)


def peer_upstream(model: str, config: PeerConfig) -> Upstream:
    """Return where a peer listens for requests for `model`."""
    endpoint = Endpoint.parse(config.proxy)
    return Upstream(
        model=model,
        generation=0,
        host=endpoint.host,
        port=endpoint.port,
        base_path=endpoint.base_path,
        tls=endpoint.tls,
        pid=None,
        key=config.api_key,
    )
