"""Who waits for a model or holds one: a number in the scheduler's queue, a `with` block here."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from types import TracebackType

from llmsnap.core.messages import (
    NO_WAIT,
    Event,
    Phases,
    RequestArrived,
    RequestFinished,
)
from llmsnap.errors import LlmsnapError
from llmsnap.runtime.upstream import Upstream
from llmsnap.telemetry.record import MoveRecord, Pauses


class Lease:
    """The right to use a model that is up: it stays up until the block ends.

    Entering waits for admission and raises what the scheduler answers instead; it doesn't yield to
    the loop when the model is up. Leaving, however it happens, is reported once.
    """

    __slots__ = (
        "_tickets",
        "_waiting",
        "aborted",
        "granted",
        "is_helper",
        "is_use",
        "limited",
        "model",
        "on_abort",
        "pauses",
        "phases",
        "swap",
        "ticket",
        "upstream",
    )

    upstream: Upstream
    """Where to send the request; set when the block is entered."""
    phases: Phases
    """What the wait was made of, also where it was for nothing."""
    granted: bool
    """Whether the holder was let in."""
    swap: MoveRecord | None
    """The model's way up that it waited for."""
    pauses: Pauses | None
    """When the model was asleep in the middle of the block; None: never."""
    on_abort: Callable[[LlmsnapError], None] | None
    """For the holder to set; called once when the process is gone or going. Must not raise."""
    aborted: LlmsnapError | None
    """Why the scheduler refused or ended this; the holder looks here after setting `on_abort`."""

    def __init__(
        self,
        tickets: Tickets,
        ticket: int,
        model: str,
        limited: bool,
        is_helper: bool | None = None,
        is_use: bool = True,
    ) -> None:
        self.ticket = ticket
        self.model = model
        self.limited = limited
        self.is_helper = is_helper
        self.is_use = is_use
        self.phases = NO_WAIT
        self.on_abort = None
        self.aborted = None
        self._tickets = tickets
        self.granted = False
        self.swap = None
        self.pauses = None
        self._waiting: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Lease:
        tickets = self._tickets
        if (look := tickets.before(self.model)) is not None:
            await look
        tickets.open[self.ticket] = self
        arrival = self.ticket, self.model, self.limited, self.is_helper, self.is_use
        tickets.post(RequestArrived(*arrival))
        if not self.granted and self.aborted is None:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            except asyncio.CancelledError:
                tickets.leave(self)
                raise
        if self.aborted is not None:
            tickets.leave(self)
            raise self.aborted
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tickets.leave(self)

    def grant(self, upstream: Upstream, phases: Phases) -> None:
        """Let the holder in."""
        self.upstream = upstream
        self.phases = phases
        self.granted = True
        self._wake()

    def pause(self, now: float) -> None:
        """Note that the model is put to sleep under the holder."""
        if self.pauses is None:
            self.pauses = Pauses()
        self.pauses.begin(now)

    def resume(self, now: float) -> None:
        """Note that the model is awake; nothing for one who came only now."""
        if self.pauses is not None and self.pauses.since is not None:
            self.pauses.end(now)

    def refuse(self, error: LlmsnapError, phases: Phases) -> None:
        """Turn the waiting client away, who has spent its wait so."""
        self.phases = phases
        self.abort(error)

    def abort(self, error: LlmsnapError) -> None:
        """Turn the waiting client away, or tell the holder that its model is going."""
        if self.aborted is not None:
            return
        self.aborted = error
        self._wake()
        if self.on_abort is not None:
            self.on_abort(error)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Tickets:
    """All leases that wait or are held, by number.

    `before` returns what is to be waited for before a model is asked for; None: nothing. `waited`
    returns how a ticket that waits has spent its wait.
    """

    def __init__(
        self,
        post: Callable[[Event], None],
        before: Callable[[str], Awaitable[object] | None] = lambda _: None,
        waited: Callable[[int], Phases] = lambda _: NO_WAIT,
    ) -> None:
        self.post = post
        self.before = before
        self.waited = waited
        self.open: dict[int, Lease] = {}
        self._numbers = itertools.count(1)

    def draw(
        self, model: str, *, limited: bool, is_helper: bool | None = None, is_use: bool = True
    ) -> Lease:
        """Return a new lease, to be entered once."""
        return Lease(self, next(self._numbers), model, limited, is_helper, is_use)

    def leave(self, lease: Lease) -> None:
        """Report that a client is done, once."""
        if self.open.pop(lease.ticket, None) is not None:
            if not lease.granted and lease.phases is NO_WAIT:
                lease.phases = self.waited(lease.ticket)
            self.post(RequestFinished(lease.ticket))

    def refuse(self, ticket: int, error: LlmsnapError, phases: Phases) -> None:
        """Refuse a waiting client, who has spent its wait so."""
        if lease := self.open.get(ticket):
            lease.refuse(error, phases)

    def abort(self, ticket: int, error: LlmsnapError) -> None:
        """Refuse a waiting client, or end the answer of one that was let in."""
        if lease := self.open.get(ticket):
            lease.abort(error)

    def abort_all(self, error: LlmsnapError) -> None:
        """End everything."""
        for lease in list(self.open.values()):
            lease.abort(error)
