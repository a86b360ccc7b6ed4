"""`/ui`: the web page, which is static files out of the package.

The files hold no secrets and need no key; what they show comes from the API, which may want one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import ETag, web

from llmsnap.errors import NotFound
from llmsnap.web.envelope import Handler

HOME: Final = "/ui/"
VIEWS: Final = ("models", "activity", "logs", "playground")
"""Parts of the page, each at `/ui/#NAME`."""

_FILES: Final = Path(__file__).with_name("ui")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Nothing may become markup or code by being put into the page as a text.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = {
    "Cache-Control": "no-cache",  # it is asked each time whether the file is still the same
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page as it is sent."""

    body: bytes
    type: str
    tag: str
    """What the file is known by: another content has another one."""


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return all files of the page by their paths below `/ui/`; they are read once."""
    paths = sorted(path for path in _FILES.rglob("*") if path.suffix in _TYPES)
    return {path.relative_to(_FILES).as_posix(): _read(path) for path in paths}


def _read(path: Path) -> PageFile:
    body = path.read_bytes()
    return PageFile(body, _TYPES[path.suffix], hashlib.sha256(body).hexdigest()[:24])


class PageRoutes:
    """Sends the page, and leads to it from where the predecessors had theirs."""

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/", lead_to(HOME)),
            web.get("/ui", lead_to(HOME)),
            web.get("/favicon.ico", self.icon),
            web.get("/ui/{rest:.*}", self.file),
        ]

    async def file(self, request: web.Request) -> web.Response:
        """Send a file. Paths without an extension are places on the page. Raises NotFound."""
        name = request.match_info["rest"]
        if name and "." not in name:
            view = name.strip("/")
            return _led(f"{HOME}#{view}" if view in VIEWS else HOME)
        return await self._send(request, name or "index.html")

    async def icon(self, request: web.Request) -> web.Response:
        """Give browsers something to put on the tab."""
        return await self._send(request, "icon.svg")

    async def _send(self, request: web.Request, name: str) -> web.Response:
        files = await asyncio.to_thread(page_files)
        if (file := files.get(name)) is None:
            raise NotFound(f"the page has no file {name!r}; it begins at {HOME}")
        tag = ETag(file.tag)
        known = request.if_none_match or ()
        if any(tag.value == one.value or one.value == "*" for one in known):
            response = web.Response(status=304, headers=_HEADERS)
        else:
            headers = {**_HEADERS, "Content-Type": file.type}
            response = web.Response(body=file.body, headers=headers)
        response.etag = tag
        return response


def lead_to(place: str) -> Handler:
    """Return what sends browsers to `place`."""

    async def lead(_: web.Request) -> web.Response:
        return _led(place)

    return lead


def _led(place: str) -> web.Response:
    return web.Response(status=302, headers={"Location": place})
