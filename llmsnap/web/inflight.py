"""Which requests are under way, and how an operator ends one of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from aiohttp import web

from llmsnap.errors import NotFound, RequestCancelled
from llmsnap.runtime.lease import Lease
from llmsnap.telemetry.captures import redacted
from llmsnap.telemetry.record import RequestRecord
from llmsnap.web.envelope import json_answer
from llmsnap.web.headers import RawHeaders


class Answer(Protocol):
    """What is sent to a client."""

    @property
    def body_bytes(self) -> int: ...


@dataclass(slots=True)
class Running:
    """One request."""

    record: RequestRecord
    method: str
    headers: RawHeaders
    """The client's."""
    lease: Lease
    answer: Answer


class InFlight:
    """All requests that wait for a model or are being answered, by number."""

    def __init__(self) -> None:
        self.running: dict[int, Running] = {}
        self._numbers = itertools.count(1)

    def add(
        self,
        record: RequestRecord,
        method: str,
        headers: RawHeaders,
        lease: Lease,
        answer: Answer,
    ) -> int:
        """List a request; return its number, by which it is taken off again."""
        number = next(self._numbers)
        self.running[number] = Running(record, method, headers, lease, answer)
        return number

    def entries(self, now: float) -> list[dict[str, Any]]:
        """Return the requests as llama-swap's page lists them, oldest first.

        `now` is on the clock of the records. Credentials are blanked.
        """
        return [self.entry(number, now) for number in self.running]

    def entry(self, number: int, now: float) -> dict[str, Any]:
        """Return one of the entries, of a request that is listed."""
        return _entry(number, self.running[number], now)

    def cancel(self, number: int) -> None:
        """End a request, whether it waits or is being answered. Raises NotFound."""
        if (running := self.running.get(number)) is None:
            raise NotFound(f"no request {number} is under way; see /api/inflight")
        running.lease.abort(RequestCancelled("an operator has ended this request"))


class InFlightRoutes:
    """`/api/inflight`. `clock` is that of the records."""

    def __init__(self, inflight: InFlight, clock: Callable[[], float]) -> None:
        self._inflight = inflight
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/api/inflight", self.show),
            web.post("/api/inflight/{id:[0-9]{1,18}}/cancel", self.cancel),
        ]

    async def show(self, _: web.Request) -> web.Response:
        """List the requests, oldest first."""
        return json_answer({"requests": self._inflight.entries(self._clock())})

    async def cancel(self, request: web.Request) -> web.Response:
        """End one request. Raises NotFound."""
        self._inflight.cancel(int(request.match_info["id"]))
        return json_answer({"msg": "ok"})


def _entry(number: int, running: Running, now: float) -> dict[str, Any]:
    record = running.record
    elapsed_s = max(0.0, now - record.arrived_at)
    kind = record.content_type.decode("latin-1")
    return {
        "id": str(number),
        "timestamp": (datetime.now(UTC) - timedelta(seconds=elapsed_s)).isoformat(),
        "model": record.model,
        "req_path": record.path,
        "method": running.method,
        "req_headers": redacted(header for header in running.headers if header[1]),
        "remote_ip": record.client,
        "resp_headers": {"Content-Type": kind} if kind else {},
        "resp_bytes": running.answer.body_bytes,
        "elapsed_ms": round(elapsed_s * 1000),
        "state": "answering" if running.lease.granted else "waiting",
    }
