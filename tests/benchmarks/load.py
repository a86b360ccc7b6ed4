"""A load generator that costs next to nothing: raw asyncio protocols that count bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast


@dataclass
class Sample:
    """What one run of load gave."""

    latencies_s: list[float] = field(default_factory=list)
    events: int = 0
    elapsed_s: float = 0.0

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return len(self.latencies_s) / self.elapsed_s

    @property
    def events_per_second(self) -> float:
        """Events of streams a second."""
        return self.events / self.elapsed_s

    def quantile_ms(self, share: float) -> float:
        """Milliseconds within which that share of the answers was complete."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3


def post(path: str, body: bytes, *, key: str = "k") -> bytes:
    """Return a whole POST request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


_LAST_CHUNK: Final = b"0\r\n\r\n"


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it is answered, while `more()` holds."""

    def __init__(self, request: bytes, sample: Sample, more: Callable[[], bool]) -> None:
        self._request = request
        self._sample = sample
        self._more = more
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._left: int | None = 0
        self._tail = b""
        self._began = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        self._head, self._left, self._tail = b"", 0, b""
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Take in what came of the answer: its head, then its body by length or in chunks."""
        if self._left == 0:
            self._head += data
            head, blank, data = self._head.partition(b"\r\n\r\n")
            if not blank:
                return
            self._left = self._length(head)
        if self._left is not None:
            self._left -= len(data)
            whole = self._left <= 0
        else:
            self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
            whole = self._tail == _LAST_CHUNK
        self._sample.events += data.count(b"data: ")
        if whole:
            self._answered()

    @staticmethod
    def _length(head: bytes) -> int | None:
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head.lower().partition(b"\r\ncontent-length:")[2]
        return int(length.split(b"\r\n", 1)[0]) if length else None

    def _answered(self) -> None:
        self._sample.latencies_s.append(time.perf_counter() - self._began)
        if self._more():
            self._ask()
        else:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the run when the server ended it."""
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server closed the connection"))

    def close(self) -> None:
        """End the connection and the wait for it."""
        if not self.done.done():
            self.done.set_result(None)
        if self._transport is not None:
            self._transport.close()


async def run(
    port: int,
    request: bytes,
    *,
    connections: int,
    seconds: float,
) -> Sample:
    """Ask `port` over and over on that many connections; return what came of it."""
    loop = asyncio.get_running_loop()
    sample = Sample()
    began = time.perf_counter()

    def more() -> bool:
        return time.perf_counter() - began < seconds

    clients = []
    for _ in range(connections):
        _, client = await loop.create_connection(
            lambda: Client(request, sample, more), "127.0.0.1", port
        )
        clients.append(client)
    await asyncio.gather(*(client.done for client in clients))
    sample.elapsed_s = time.perf_counter() - began
    return sample
