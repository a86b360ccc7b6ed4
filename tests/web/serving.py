"""An application on a port of its own, served as llmsnap serves it, and a client for it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDictProxy

from llmsnap.web.accesslog import AccessLog
from llmsnap.web.connection import listening


@dataclass
class Reply:
    """A whole answer."""

    status: int
    headers: CIMultiDictProxy[str]
    text: str

    @property
    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.text)

    @property
    def message(self) -> str:
        """The message of the error in the body."""
        return str(self.json["error"]["message"])


@dataclass
class Site:
    """An application that is being served."""

    host: str
    port: int
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        """Its base, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    async def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> Reply:
        """Send one request and read its whole answer; redirects aren't followed."""
        async with self.session.request(
            method, path, headers=headers, data=data, allow_redirects=False
        ) as answer:
            return Reply(answer.status, answer.headers, await answer.text())

    async def exchange(self, sent: bytes, *, timeout_s: float = 30) -> bytes:
        """Send raw bytes; return all that is said until the connection closes."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(sent)
            async with asyncio.timeout(timeout_s):
                return await reader.read()
        finally:
            writer.close()

    async def raw(self, line: str) -> bytes:
        """Send a request that begins with `line` (`GET /x%2Fy`), nothing of it made prettier."""
        head = f"{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        return await self.exchange(head.encode())


@asynccontextmanager
async def serving(
    app: web.Application,
    *,
    headers: Mapping[str, str] | None = None,
    log: AccessLog | None = None,
) -> AsyncIterator[Site]:
    """Serve `app` on a free port; `headers` go with each request that `ask` sends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        async with (
            listening(app, [listener], log=log, closing_s=60.0),
            aiohttp.ClientSession(f"http://{host}:{port}", headers=headers) as session,
        ):
            yield Site(host, port, session)
