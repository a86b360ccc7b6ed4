"""Hands records to those who listen, in batches, when the requests themselves are served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from msgspec import Struct

from llmsnap.telemetry.record import ExitRecord, MoveRecord, RequestRecord
from llmsnap.telemetry.refusal import refusal
from llmsnap.telemetry.tokens import tokens_of

BATCH_S: Final = 0.1
_REFUSED: Final = 400
MOST_RECORDS: Final = 100
"""A batch of more would hold the event loop for too long."""
FLOOD_PER_S: Final = 250
"""Requests a second beyond which they are counted, but not kept each: no model answers as many."""


class Batch(Struct):
    """What has ended since the last batch, each kind in the order in which it ended."""

    requests: list[RequestRecord]
    moves: list[MoveRecord]
    exits: list[ExitRecord]


Listener = Callable[[Batch], None]


class Recorder:
    """Takes records on the hot path; listeners get them soon after, with times for people.

    Listeners are called on the event loop: they must be quick, and must not raise. Build it within
    the loop.
    """

    def __init__(self, *, reads_tokens: bool = True) -> None:
        self.reads_tokens = reads_tokens
        """Whether answers are to be read for what they say of tokens."""
        self.capture_bytes = 0
        """Largest request and answer that are to be kept whole; 0: none are."""
        self.clock: Callable[[], float] = time.monotonic
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Listener] = []
        self._requests: list[RequestRecord] = []
        self._moves: list[MoveRecord] = []
        self._exits: list[ExitRecord] = []
        self._timer: asyncio.Handle | None = None
        self._is_flooded = False

    @property
    def capture_limit(self) -> int:
        """Most bytes to keep of one request and its answer now; 0: it isn't captured."""
        return 0 if self._is_flooded else self.capture_bytes

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with each batch from now on."""
        self._listeners.append(listener)

    def request(self, record: RequestRecord) -> None:
        """Take a request that has ended."""
        self._requests.append(record)
        self._soon()

    def move(self, record: MoveRecord) -> None:
        """Take a way up or down that has ended."""
        self._moves.append(record)
        self._soon()

    def exit(self, record: ExitRecord) -> None:
        """Take the end of a process."""
        self._exits.append(record)
        self._soon()

    def flush(self) -> None:
        """Hand on everything now: at the end, and before somebody reads the sums."""
        while self._requests or self._moves or self._exits:
            self._hand_on()

    def _soon(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(BATCH_S, self._hand_on)

    def _hand_on(self, *, goes_on: bool = False) -> None:
        """Hand a batch on; `goes_on`: of what came in the same time as the one before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not goes_on:
            self._is_flooded = len(self._requests) > BATCH_S * FLOOD_PER_S
        requests, self._requests = self._requests[:MOST_RECORDS], self._requests[MOST_RECORDS:]
        batch = Batch(requests, self._moves, self._exits)
        self._moves, self._exits = [], []
        self._complete(batch)
        for listener in self._listeners:
            listener(batch)
        if self._requests:  # the loop has a turn for others in between
            self._timer = self._loop.call_soon(partial(self._hand_on, goes_on=True))

    def _complete(self, batch: Batch) -> None:
        """Add what nobody needed before: tokens, and instants for people."""
        ago = datetime.now(UTC).timestamp() - self.clock()
        for record in batch.requests:
            record.arrived = record.arrived_at + ago
            if (kept := record.excerpt) is not None:
                record.excerpt = None
                record.tokens = tokens_of(kept) if isinstance(kept, bytes) else kept.tokens()
                if record.status >= _REFUSED and not record.error:
                    start = kept if isinstance(kept, bytes) else kept.start()
                    record.error = refusal(record.status, start)
        for move in batch.moves:
            move.began = move.began_at + ago
        for end in batch.exits:
            end.ended = end.at + ago
