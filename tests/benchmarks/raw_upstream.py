"""A model server that costs next to nothing: a raw asyncio protocol with fixed answers.

    python -m tests.benchmarks.raw_upstream --port 5800

`/health` answers 200. A body with `"stream":true` gets 100 server-sent events, each written in an
event loop turn of its own as engines do; with `"hold":true` beside it the stream stays open after
the first one. Anything else gets 1 kB of JSON once its body is in. It keeps connections alive and
reads requests by `Content-Length` only, which is how llmsnap sends them.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress
from typing import cast

import uvloop

EVENTS = 100
ANSWER_BYTES = 1024

_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":0,"model":"raw",'
    b'"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
)
_CHUNK = b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT)
_TOLD = (
    b'"usage":{"completion_tokens":100,"prompt_tokens":200,"total_tokens":300},'
    b'"timings":{"cache_n":150,"prompt_n":50,"prompt_ms":48.874,"predicted_n":100,'
    b'"predicted_ms":1172.4}'
)
_END = b'data: {"choices":[],%b}\n\ndata: [DONE]\n\n' % _TOLD
_LAST = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_END), _END)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def _whole(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


_ANSWER = _whole(b'{"text":"' + b"x" * (ANSWER_BYTES - len(_TOLD) - 12) + b'",' + _TOLD + b"}")
_HEALTHY = _whole(b'{"status":"ok"}')


class RawServer(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._body_left = 0
        self._answer = _ANSWER
        self._hold = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """Let a stream in progress end."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Answer each request whose body is in."""
        if self._body_left:
            self._take_body(data)
            return
        self._head += data
        head, blank, body = self._head.partition(b"\r\n\r\n")
        if blank:
            self._head = b""
            self._take_head(head, body)

    def _take_head(self, head: bytes, body: bytes) -> None:
        length = head.lower().partition(b"\r\ncontent-length:")[2]
        self._body_left = int(length.split(b"\r\n", 1)[0] or 0)
        self._answer = _HEALTHY if head.startswith(b"GET /health") else _ANSWER
        if b'"stream":true' in body:
            self._answer = _STREAM_HEAD
            self._hold = b'"hold":true' in body
        self._take_body(body)

    def _take_body(self, data: bytes) -> None:
        self._body_left -= len(data)
        if self._body_left <= 0 and self._transport is not None:
            self._transport.write(self._answer)
            if self._answer is _STREAM_HEAD:
                self._loop.call_soon(self._event, 1)

    def _event(self, number: int) -> None:
        if self._transport is None:
            return
        self._transport.write(_CHUNK)
        if self._hold:
            return
        if number < EVENTS:
            self._loop.call_soon(self._event, number + 1)
        else:
            self._transport.write(_LAST)


async def _serve(host: str, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(RawServer, host, port, backlog=2048)
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        uvloop.run(_serve(options.host, options.port))


if __name__ == "__main__":
    main()
