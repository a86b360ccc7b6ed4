"""Model servers that do exactly as a test says, byte by byte."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec


@dataclass
class Received:
    """One request as it came in."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        """The values of all headers of that name."""
        return [value for key, value in self.headers if key.lower() == name]

    def __getitem__(self, name: str) -> str:
        """The value of the one header of that name."""
        (value,) = self.all(name)
        return value

    @property
    def json(self) -> Any:
        """The decoded body."""
        return msgspec.json.decode(self.body)


class Line:
    """The server's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.over = asyncio.Event()
        """Set when the test ends, for scripts that go on until then."""

    async def say(self, *parts: bytes) -> None:
        """Send bytes, as far as the other side takes them."""
        if self.writer.is_closing():  # uvloop's transports would raise a RuntimeError
            raise ConnectionResetError("the other side has closed")
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def heard(self) -> None:
        """Let the other side, on the same event loop, read what was said before anything more."""
        await asyncio.sleep(0.01)
        # After a standstill that is over at once: what counts is how often sockets were looked at.
        for _ in range(5):
            await asyncio.sleep(0)

    async def chunk(self, data: bytes) -> None:
        """Send one chunk of a chunked body."""
        await self.say(b"%x\r\n%b\r\n" % (len(data), data))

    async def gone(self) -> None:
        """Return when the other side has closed."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def drop(self) -> None:
        """Close at once, as the system does for a process that dies."""
        # asyncio's transports fail in `abort` once they have ended by `close` with bytes left.
        with suppress(AttributeError):
            self.writer.transport.abort()

    def reset(self) -> None:
        """Close so that the other side gets an error and not an end."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Received, Line], Awaitable[None]]


def whole(
    body: bytes, *more: str, status: str = "200 OK", content_type: str = "application/json"
) -> bytes:
    """An answer with a length."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        *more,
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


async def say_ok(received: Received, line: Line) -> None:
    """Answer with a little JSON."""
    await line.say(whole(b'{"ok":true}'))


@dataclass
class Scripted:
    """A server; its script is called for each request, and may be exchanged."""

    script: Script = say_ok
    received: list[Received] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    gone: int = 0
    """How many connections the other side has ended."""
    port: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def running(cls, script: Script = say_ok) -> AsyncIterator[Self]:
        """Serve on a free port inside the block."""
        scripted = cls(script)
        server = await asyncio.start_server(scripted._serve, "127.0.0.1", 0, limit=2**20)
        scripted.port = server.sockets[0].getsockname()[1]
        try:
            yield scripted
        finally:
            server.close()
            for line in scripted.lines:
                line.over.set()
                line.drop()
            if scripted.tasks:
                await asyncio.wait(scripted.tasks, timeout=30)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        line = Line(reader, writer)
        self.lines.append(line)
        try:
            while (received := await read_request(reader)) is not None:
                self.received.append(received)
                await self.script(received, line)
            self.gone += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone += 1
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> Received | None:
    """Read a whole request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = [(name, value.strip()) for name, _, value in (li.partition(":") for li in lines)]
    received = Received(method, target, headers)
    if received.all("transfer-encoding"):
        received.body = await _read_chunks(reader)
    elif length := received.all("content-length"):
        received.body = await reader.readexactly(int(length[0]))
    return received


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while size := int(await reader.readuntil(b"\n"), 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(chunks)
