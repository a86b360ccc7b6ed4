"""One line a request, in llama-swap's words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from llmsnap.web.head import Head, client_ip

_UNLOGGED: Final = "/wol-health"
_POLLED: Final = ("/api/", "/ui/")
"""What the page and those like it look at again and again."""
_LONGEST: Final = 1000
"""Characters of what a client sent; a head may have 64 KiB, and the log is kept to 100 KiB."""


class AccessLog(AbstractAccessLogger):
    """Writes the lines; `write` gets those of one turn of the loop together, without their ends.

    They don't go through `logging`, which would take as long over each as all else that we do for
    a request.
    """

    def __init__(self, write: Callable[[list[str]], None], *, polls: bool = False) -> None:
        super().__init__(logging.getLogger(__name__), "")
        self._write = write
        self._lines: list[str] = []
        self.polls = polls
        """Whether looks of monitors and of the page are written, too, that don't fail."""
        self.is_wanted = True
        """Whether anything is written."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write the line of one of aiohttp's requests."""
        self.note(request, response.status, _size(response), time)

    def note(self, request: Head, status: int, size: int, took_s: float) -> None:
        """Write the line of a request that was answered with `size` bytes."""
        path = request.path
        if not self.is_wanted or path.startswith(_UNLOGGED):
            return
        if not self.polls and is_poll(request, status):
            return
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._hand_on)
        version = request.version
        agent = request.headers.get("User-Agent", "")
        self._lines.append(
            f'Request {_clipped(client_ip(request))} "{request.method} '
            f"{_clipped(request.raw_path)} "
            f'HTTP/{version.major}.{version.minor}" {status} {size} '
            f'"{_clipped(agent)}" {took_s * 1000:.1f}ms'
        )

    def _hand_on(self) -> None:
        lines, self._lines = self._lines, []
        self._write(lines)


def _clipped(sent: str) -> str:
    return sent if len(sent) <= _LONGEST else f"{sent[:_LONGEST]}…"


def is_poll(request: Head, status: int) -> bool:
    """Whether somebody only looks how things are, and has seen it."""
    if request.method != "GET" or status >= 400:
        return request.path == "/health"
    return request.path.startswith(_POLLED) or request.path in ("/health", "/metrics")


def _size(response: web.StreamResponse) -> int:
    """Return the bytes of the body; of a stream, those of its head and framing are among them."""
    length = response.content_length
    return response.body_length if length is None else length
