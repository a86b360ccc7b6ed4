"""One line a request, in llama-swap's words."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

_UNLOGGED: Final = "/wol-health"
_POLLED: Final = "/health"
_LINE: Final = 'Request %s "%s %s HTTP/%d.%d" %d %d "%s" %.1fms'


class AccessLog(AbstractAccessLogger):
    """Writes the lines; what monitors poll is a matter for debugging."""

    @property
    def enabled(self) -> bool:
        """Whether aiohttp should measure requests at all."""
        return self.logger.isEnabledFor(logging.INFO)

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write the line of a request that took `time` seconds."""
        path = request.path
        if path.startswith(_UNLOGGED):
            return
        self.logger.log(
            logging.DEBUG if path == _POLLED else logging.INFO,
            _LINE,
            client_ip(request),
            request.method,
            request.raw_path,
            *request.version,
            response.status,
            _size(response),
            request.headers.get("User-Agent", ""),
            time * 1000,
        )


def _size(response: web.StreamResponse) -> int:
    """Return the bytes of the body; of a stream, those of its head and framing are among them."""
    length = response.content_length
    return response.body_length if length is None else length


def client_ip(request: web.BaseRequest) -> str:
    """Return who asks, as the nearest proxy in front of us says, else the peer's address."""
    headers = request.headers
    if forwarded := headers.get("X-Forwarded-For"):
        return forwarded.partition(",")[0].strip()
    return headers.get("X-Real-IP") or (request.remote or "-").removeprefix("::ffff:")
