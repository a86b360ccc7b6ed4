"""What a request looks like when it goes to another machine, and how it never goes in a circle."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from llmsnap.errors import LoopDetected
from llmsnap.runtime.upstream import Upstream
from llmsnap.web.head import Head
from llmsnap.web.headers import CLIENT_KEYS, RawHeaders

_OURS: Final = frozenset(
    {
        *(b"host", b"via", b"forwarded", b"x-real-ip"),
        *(b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-port"),
    }
)
"""Headers that speak of the way to this machine, which is no concern of the next one."""
_DEFAULT_PORTS: Final = {False: 80, True: 443}
_MODEL: Final = re.compile(rb"(?<=[?&])model=[^&]*")


def refuse_loop(request: Head, mark: bytes) -> None:
    """Raise LoopDetected for a request that has been here before; `mark` is ours in `Via`."""
    if any(name.lower() == b"via" and mark in value for name, value in request.raw_headers):
        raise LoopDetected(
            "this request came back to the machine that it started from: "
            "one of its peers lists a model that it hasn't got itself"
        )


def peer_headers(headers: RawHeaders, upstream: Upstream, via: bytes) -> tuple[RawHeaders, bytes]:
    """Return which of the client's headers go to a peer, and the lines that come with them.

    It gets its own host and key, and is told nothing of how the request came here but for the
    proxies in `Via`, with `via` at the end.
    """
    left_out = _OURS | CLIENT_KEYS if upstream.key else _OURS
    passed = [header for header in headers if header[0].lower() not in left_out]
    ways = [*(value for name, value in headers if name.lower() == b"via"), *([via] if via else [])]
    lines = [b"Host: ", _host(upstream), b"\r\n"]
    if ways:
        lines += [b"Via: ", b", ".join(ways), b"\r\n"]
    if upstream.key:
        key = upstream.key.encode()
        lines += [b"Authorization: Bearer ", key, b"\r\nx-api-key: ", key, b"\r\n"]
    return passed, b"".join(lines)


def with_model(target: bytes, name: str) -> bytes:
    """Return path and query with `name` for the model that the query names, if it names one."""
    if b"model=" not in target:
        return target
    return _MODEL.sub(b"model=" + quote(name, safe="").encode(), target)


def _host(upstream: Upstream) -> bytes:
    host = f"[{upstream.host}]" if ":" in upstream.host else upstream.host
    is_default = upstream.port == _DEFAULT_PORTS[upstream.tls]
    return (host if is_default else f"{host}:{upstream.port}").encode()
