"""A model server that misbehaves on demand, for what a real llama-server can't be made to do.

    python -m tests.helpers.fake_server --port 5800 --ready 3 --gap 0.5 --chunks 20

It keeps to HTTP/1.1 and to the shapes of OpenAI's answers. It shows nothing of loading times,
memory, tokenising or caches: real llama-servers in tests/e2e show those. Only the standard
library, so that it listens 60 ms after it is started.

Every JSON answer tells what was received (`seen`: method, path, headers, body as text, pid).
`--journal FILE` gets one JSON line an event: start, request, disconnect, answered, term. `at` is
on the machine's monotonic clock, so that journals can be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gzip
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ECHOED_BYTES = 4 * 2**20
"""How much of a body an answer repeats; `sha256` is that of all of it."""


@dataclass(frozen=True)
class Seen:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        """The body as an object; empty when it is anything else."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


class Journal:
    """What happened, one JSON line each; nothing without a file."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None

    def add(self, event: str, **more: object) -> None:
        """Append one event."""
        if self._path is not None:
            with self._path.open("a") as file:
                noted = {"event": event, "pid": os.getpid(), "at": time.monotonic(), **more}
                file.write(json.dumps(noted) + "\n")


class FakeServer:
    """Answers requests as its options say."""

    def __init__(self, options: argparse.Namespace, journal: Journal) -> None:
        self._options = options
        self._journal = journal
        self._began = time.monotonic()
        self._busy = 0
        self._answered = 0
        self.listener: asyncio.Server | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        try:
            while (seen := await read_request(reader)) is not None:
                if not await self._answer(seen, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self._journal.add("disconnect")
        finally:
            writer.close()

    async def _answer(
        self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; False when the connection is used up."""
        path = seen.path.partition("?")[0]
        if path == "/health":
            return await self._health(writer)
        self._journal.add("request", path=seen.path, model=seen.json.get("model"))
        if seen.headers.get("upgrade", "").lower() == "websocket":
            await _echo_websocket(seen, reader, writer)
            return False
        self._busy += 1
        watch = asyncio.ensure_future(self._watch_for_disconnect(reader, seen.path))
        try:
            if self._options.hang:
                await watch
                return False
            await asyncio.sleep(self._options.first_byte)
            if seen.json.get("stream") is True:
                await self._stream(seen, writer)
            else:
                await self._whole(seen, writer)
            self._journal.add("answered", path=seen.path)
            self._answered += 1
            if self._answered == self._options.deaf_after and self.listener is not None:
                self.listener.close()
                return False
        finally:
            self._busy -= 1
            watch.cancel()
        return not watch.done() or watch.cancelled()

    async def _watch_for_disconnect(self, reader: asyncio.StreamReader, path: str) -> None:
        # A client that sends nothing more and goes away is seen here while the answer is made.
        while not reader.at_eof():  # noqa: ASYNC110 - a StreamReader has no event for it
            await asyncio.sleep(0.01)
        self._journal.add("disconnect", path=path)

    async def _health(self, writer: asyncio.StreamWriter) -> bool:
        if self._options.deaf_when_busy and self._busy:
            await asyncio.sleep(3600)
        ready = time.monotonic() - self._began >= self._options.ready
        body = b'{"status":"ok"}' if ready else b'{"status":"loading model"}'
        await send(writer, 200 if ready else 503, body)
        return True

    async def _whole(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        answer = {
            "id": "fake-1",
            "object": "chat.completion",
            "model": seen.json.get("model"),
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": self._options.text},
                    "text": self._options.text,
                }
            ],
            "usage": {"prompt_tokens": 25, "completion_tokens": 10, "total_tokens": 35},
            "seen": {
                "method": seen.method,
                "path": seen.path,
                "headers": seen.headers,
                "body": seen.body[:ECHOED_BYTES].decode("utf-8", "backslashreplace"),
                "sha256": hashlib.sha256(seen.body).hexdigest(),
                "pid": os.getpid(),
                "env": {k: v for k, v in os.environ.items() if k.startswith(("FAKE_", "CUDA_"))},
            },
        }
        body = json.dumps(answer).encode()
        headers = list(self._extra_headers())
        if self._options.gzip:
            body = gzip.compress(body)
            headers.append("Content-Encoding: gzip")
        await send(writer, self._options.status, body, headers)

    async def _stream(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        head = [
            f"HTTP/1.1 {self._options.status} OK",
            "Content-Type: text/event-stream",
            "Transfer-Encoding: chunked",
            *self._extra_headers(),
        ]
        writer.write("\r\n".join([*head, "", ""]).encode())
        await writer.drain()
        await asyncio.sleep(self._options.after_header)
        for n in range(self._options.chunks):
            if n == self._options.die_mid:
                os._exit(9)
            if n == self._options.hang_after:
                await asyncio.sleep(3600)
            delta = {"index": 0, "delta": {"content": f"{n} "}, "finish_reason": None}
            event = {
                "id": "fake-1",
                "object": "chat.completion.chunk",
                "created": 0,
                "model": seen.json.get("model"),
                "choices": [delta],
            }
            _write_chunk(writer, b"data: " + json.dumps(event).encode() + b"\n\n")
            await writer.drain()
            await asyncio.sleep(self._options.gap)
        _write_chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _extra_headers(self) -> list[str]:
        return ["Access-Control-Allow-Origin: *"] if self._options.acao else []


async def read_request(reader: asyncio.StreamReader) -> Seen | None:
    """Read one request; None at the end of the connection."""
    line = await reader.readline()
    if not line:
        return None
    method, path, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (header := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = header.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return Seen(method, path, headers, await _read_body(reader, headers))


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", ""):
        parts = []
        while size := int(await reader.readuntil(b"\n"), 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(parts)
    return await reader.readexactly(int(headers.get("content-length", 0)))


async def send(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: list[str] | None = None
) -> None:
    """Send a whole answer."""
    head = [
        f"HTTP/1.1 {status} Status",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(headers or []),
    ]
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    await writer.drain()


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def _echo_websocket(
    seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Shake hands, then send the raw bytes of each frame back, unmasked as servers must."""
    guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    digest = hashlib.sha1((seen.headers["sec-websocket-key"] + guid).encode()).digest()
    head = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
    ]
    writer.write("\r\n".join([*head, "", ""]).encode())
    while True:
        first, second = await reader.readexactly(2)
        mask = await reader.readexactly(4)
        payload = await reader.readexactly(second & 0x7F)
        plain = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        writer.write(bytes([first, len(plain)]) + plain)
        await writer.drain()
        if first & 0x0F == 8:
            return


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    seconds: Callable[[str], float] = float
    parser.add_argument("--ready", type=seconds, default=0.0, help="/health is 503 until then")
    parser.add_argument("--exit", type=int, help="print --stderr and exit at once with this code")
    parser.add_argument("--stderr", default="", help="text for standard error at start")
    parser.add_argument("--die-at", type=seconds, help="exit with 7 after that many seconds")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--slow-term", type=seconds, default=0.0, help="seconds to end after it")
    parser.add_argument("--fork", action="store_true", help="a child holds the port")
    parser.add_argument("--first-byte", type=seconds, default=0.0, help="before the header")
    parser.add_argument("--after-header", type=seconds, default=0.0, help="between it and chunk 1")
    parser.add_argument("--gap", type=seconds, default=0.0, help="between chunks")
    parser.add_argument("--chunks", type=int, default=5)
    parser.add_argument("--die-mid", type=int, default=-1, help="die before that chunk")
    parser.add_argument("--hang-after", type=int, default=-1, help="go silent before that chunk")
    parser.add_argument("--hang", action="store_true", help="accept and never answer")
    parser.add_argument("--deaf-when-busy", action="store_true", help="no /health meanwhile")
    parser.add_argument("--deaf-after", type=int, help="stop listening after that many answers")
    parser.add_argument("--status", type=int, default=200)
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--acao", action="store_true", help="send Access-Control-Allow-Origin")
    parser.add_argument("--text", default="hello")
    parser.add_argument("--journal")
    parser.add_argument("--journal-tag", default="")
    return parser.parse_args()


async def _run(options: argparse.Namespace, journal: Journal) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def on_term() -> None:
        journal.add("term")
        if not options.ignore_term:
            loop.call_later(options.slow_term, ended.set)

    loop.add_signal_handler(signal.SIGTERM, on_term)
    if options.die_at is not None:
        loop.call_later(options.die_at, os._exit, 7)
    listener = socket.create_server((options.host, options.port), backlog=1024)
    server = FakeServer(options, journal)
    server.listener = await asyncio.start_server(server.serve, sock=listener, limit=2**20)
    await ended.wait()


def main() -> None:
    """Run until a signal, or as the options say."""
    options = _options()
    journal = Journal(options.journal)
    if options.stderr:
        print(options.stderr, file=sys.stderr, flush=True)
    if options.exit is not None:
        sys.exit(options.exit)
    if options.fork:
        rest = [arg for arg in sys.argv[1:] if arg != "--fork"]
        sys.exit(subprocess.call([sys.executable, "-m", "tests.helpers.fake_server", *rest]))
    journal.add("start", tag=options.journal_tag)
    asyncio.run(_run(options, journal))
    os._exit(0)


if __name__ == "__main__":
    main()
