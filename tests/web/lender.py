"""Lends models that tests put up and take down, and keeps books of who holds what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import NO_WAIT, Event, ModelView, Phases, RequestArrived, RequestFinished
from llmsnap.errors import LlmsnapError
from llmsnap.runtime.lease import Lease, Tickets
from llmsnap.runtime.upstream import Upstream
from tests.helpers.views import view_of

Watcher = Callable[[ModelView, State], None]


class FakeLender:
    """Stands in for the supervisor, with real leases but no scheduler and no processes."""

    def __init__(self) -> None:
        self.arrived: list[tuple[str, bool]] = []
        """Model and `limited` of every request for a lease."""
        self.classes: list[bool | None] = []
        """What each of them said of its class."""
        self.uses: list[bool] = []
        """Whether each of them was a use of its model."""
        self.waiting: dict[int, str] = {}
        self.in_flight: dict[int, str] = {}
        self.refusal: LlmsnapError | None = None
        """What everybody gets who comes."""
        self.phases: Phases = NO_WAIT
        self.ended: list[tuple[str, int]] = []
        """Models and generations that were told to be stalled."""
        self.deafened: list[tuple[str, int]] = []
        """The same of those that were told to take no connections."""
        self._upstreams: dict[str, Upstream] = {}
        self._ready_at: dict[str, float] = {}
        self._watchers: list[Watcher] = []
        self._tickets = Tickets(self._post)

    # ---- what the hot path sees ----------------------------------------------------------------

    def lease(
        self,
        model: str,
        *,
        limited: bool = True,
        is_helper: bool | None = None,
        is_use: bool = True,
    ) -> Lease:
        """Lend `model` at once when it is up."""
        self.classes.append(is_helper)
        self.uses.append(is_use)
        return self._tickets.draw(model, limited=limited, is_helper=is_helper, is_use=is_use)

    def upstream(self, model: str) -> Upstream | None:
        """Where it listens, when it is up."""
        return self._upstreams.get(model)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Tell of what the test does to models."""
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    def view(self, model: str) -> ModelView:
        """Its state, and since when it is ready."""
        if model not in self._upstreams:
            return view(model, State.SLEEPING)
        return replace(view(model, State.READY), ready_at=self._ready_at[model])

    def stalled(self, model: str, generation: int) -> None:
        """Note it."""
        self.ended.append((model, generation))

    def deaf(self, model: str, generation: int) -> None:
        """Note it."""
        self.deafened.append((model, generation))

    # ---- what tests do -------------------------------------------------------------------------

    def put_up(
        self, model: str, port: int, *, generation: int = 1, base_path: str = "", key: str = ""
    ) -> None:
        """Let `model` be ready, and let in who waits."""
        self._upstreams[model] = Upstream(
            model, generation, "127.0.0.1", port, base_path, tls=False, pid=None, key=key
        )
        self._ready_at[model] = asyncio.get_running_loop().time()
        for ticket in [t for t, waited_for in self.waiting.items() if waited_for == model]:
            self._admit(ticket, model)

    def put_down(self, model: str, state: State = State.STOPPED) -> None:
        """Let `model` be in a state in which it can't be asked."""
        del self._upstreams[model]
        for watcher in self._watchers:
            watcher(view(model, state), State.READY)

    def abort(self, model: str, error: LlmsnapError) -> None:
        """End everything that is with `model` or waits for it."""
        for ticket, wanted in (*self.in_flight.items(), *self.waiting.items()):
            if wanted == model:
                self._tickets.abort(ticket, error)

    def _post(self, event: Event) -> None:
        match event:
            case RequestArrived(ticket, model, limited):
                self.arrived.append((model, limited))
                if self.refusal is not None:
                    self._tickets.abort(ticket, self.refusal)
                elif model in self._upstreams:
                    self._admit(ticket, model)
                else:
                    self.waiting[ticket] = model
            case RequestFinished(ticket):
                self.waiting.pop(ticket, None)
                self.in_flight.pop(ticket, None)

    def _admit(self, ticket: int, model: str) -> None:
        self.waiting.pop(ticket, None)
        self.in_flight[ticket] = model
        self._tickets.open[ticket].grant(self._upstreams[model], self.phases)


def view(model: str, state: State) -> ModelView:
    """A model in that state."""
    return view_of(model, state=state)
