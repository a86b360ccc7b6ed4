"""The one gate that every request passes: is its Host ours, is it a preflight, has it a key?"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from aiohttp import web

from llmsnap.config.schema import Config
from llmsnap.errors import CodingNotImplemented, Forbidden, LlmsnapError, Unauthorized
from llmsnap.web.envelope import Handler, error_response
from llmsnap.web.head import Head, forget_heads

OPEN_PATHS: Final = frozenset({"/", "/health", "/wol-health", "/favicon.ico", "/ui", "/upstream"})
"""Paths that need no key; nor do the files of the page, which asks for the key itself."""

_ORDERS: Final = frozenset({"/unload", "/models/load", "/models/unload"})
"""Beside what is changed below `/api/`."""
_USES: Final = frozenset(
    f"/api/{name}" for name in ("chat", "generate", "embed", "embeddings", "show")
)
"""Ollama's paths, by which models are used and not managed."""
STRANGER: Final = "a page of another site may not give orders to this proxy"
_LOOKS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\s:@/\[\]]+))(?::\d+)?", re.IGNORECASE)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REMEMBERED_HOSTS: Final = 256
_DEFAULT_HEADERS: Final = "Content-Type, Authorization, Accept, X-Requested-With"


class Gate:
    """Refuses requests that weren't meant for this proxy, and those without a key.

    The Host header is checked against a list because a page on the web can make a browser believe
    that its own name means 127.0.0.1 (DNS rebinding); comparing Origin with Host wouldn't notice.
    """

    def __init__(
        self, *, api_keys: Sequence[str], allowed_hosts: Sequence[str], loopback: bool
    ) -> None:
        self._loopback = loopback
        self._known_hosts: set[str] = set()
        self._let_in(api_keys, allowed_hosts)

    def adopt(self, config: Config) -> None:
        """Go by other settings, for clients who are connected already, too."""
        self._let_in(config.api_keys, config.allowed_hosts)
        forget_heads()

    def _let_in(self, api_keys: Sequence[str], allowed_hosts: Sequence[str]) -> None:
        self._keys = [key.encode() for key in api_keys]
        self._allowed = frozenset(host_name(host) or _bare(host) for host in allowed_hosts)
        self._checks_host = (self._loopback or bool(allowed_hosts)) and "*" not in self._allowed
        self._known_hosts.clear()

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let through to `handler` what may pass; answer preflights."""
        self.check(request)
        check_codings(request)
        if request.method == "OPTIONS":
            return preflight(request.headers.get("Access-Control-Request-Headers", ""))
        return await handler(request)

    async def expect(self, request: web.Request) -> web.StreamResponse | None:
        """Ask for the body that a client holds back (`Expect: 100-continue`), if it may send it.

        aiohttp calls this before the middlewares, and takes None for going on.
        """
        try:
            self.check(request)
            check_codings(request)
        except LlmsnapError as error:
            return error_response(error, accept=request.headers.get("Accept", ""))
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer itself hasn't begun
        return None

    def check(self, request: Head) -> None:
        """Raise Forbidden or Unauthorized unless the request may pass."""
        if self._checks_host:
            self.check_host(request.headers.get("Host", ""))
        if is_strangers(request) and is_order(request):
            raise Forbidden(STRANGER)
        if self._keys and not is_open(request.path) and request.method != "OPTIONS":
            self.check_key(request)

    def check_host(self, host: str) -> None:
        """Raise Forbidden unless `host` is a name of this machine or an allowed one.

        Without any it can't come from a browser, and passes.
        """
        if not host or host in self._known_hosts:
            return
        name = host_name(host)
        if name is None or not (is_local(name) or self._is_allowed(name)):
            raise Forbidden(
                f"host {host!r} isn't a name of this machine; "
                f"if it is meant to be, add it to allowedHosts in the configuration"
            )
        if len(self._known_hosts) < _REMEMBERED_HOSTS:
            self._known_hosts.add(host)

    def check_key(self, request: Head) -> None:
        """Raise Unauthorized unless the request carries one of the keys."""
        offered = offered_key(request).encode("utf-8", "surrogateescape")
        valid = False
        for key in self._keys:  # all of them, so that the time tells nothing
            valid |= hmac.compare_digest(offered, key)
        if not valid:
            raise Unauthorized("unauthorized: invalid or missing API key")

    def _is_allowed(self, name: str) -> bool:
        _, _, parent = name.partition(".")
        return name in self._allowed or f"*.{parent}" in self._allowed


def check_codings(request: web.Request) -> None:
    """Raise CodingNotImplemented unless the body comes as it is, or in chunks (RFC 9112, 6.1)."""
    codings = ", ".join(request.headers.getall("Transfer-Encoding", ()))
    if codings and codings.strip().lower() != "chunked":
        raise CodingNotImplemented(
            f"transfer coding {codings!r} isn't understood; send the body plainly or `chunked`"
        )


def is_strangers(request: Head) -> bool:
    """Whether a page of another site asks, as browsers say."""
    return request.headers.get("Sec-Fetch-Site", "") == "cross-site"


def offered_key(request: Head) -> str:
    """Return the key in the request's headers, or nothing: Basic password, Bearer, x-api-key."""
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    value = value.strip()
    match scheme.lower():
        case "basic" if value:
            return _password(value)
        case "bearer" if value:
            return value
        case _:
            return request.headers.get("x-api-key", "")


def _password(credentials: str) -> str:
    try:
        decoded = base64.b64decode(credentials, validate=True)
    except ValueError:  # no base64, or not even ASCII
        return ""
    return decoded.partition(b":")[2].decode("utf-8", "surrogateescape")


def preflight(requested: str) -> web.Response:
    """Answer a CORS preflight that asks for the headers `requested`; no model is touched.

    Credentials are never allowed, so that the `*` gives nothing away.
    """
    names = (name.strip() for name in requested.split(","))
    allowed = ", ".join(name for name in names if _TOKEN.fullmatch(name))
    return web.Response(
        status=204,
        headers={
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE, OPTIONS",
            "Access-Control-Allow-Headers": allowed or _DEFAULT_HEADERS,
            "Access-Control-Max-Age": "86400",
        },
    )


def is_open(path: str) -> bool:
    """Whether `path` needs no key."""
    return path in OPEN_PATHS or path.startswith("/ui/")


def is_order(request: Head) -> bool:
    """Whether a request changes something other than by using a model.

    Browsers send some of these for any page, without a preflight.
    """
    path = request.path
    if path in _ORDERS:
        return True
    return path.startswith("/api/") and request.method not in _LOOKS and path not in _USES


def host_name(host: str) -> str | None:
    """Return the name in a Host header, lower case and without port; None when it has none."""
    found = _HOST.fullmatch(host)
    return _bare(found["v6"] or found["name"]) if found else None


def is_local(name: str) -> bool:
    """Whether `name` means this machine wherever it is looked up."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _bare(host: str) -> str:
    return host.strip().lower().rstrip(".")
