"""Where the models' servers listen, and whether that can be."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import SplitResult, urlsplit

from llmsnap.config.schema import Config
from llmsnap.errors import ConfigError

_PORTS: Final = {"http": 80, "https": 443}


def url_fault(url: str) -> str | None:
    """Return what is wrong with `url` as the address of a server; None: nothing."""
    example = "write one such as http://localhost:9000"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"{url!r} isn't a URL ({error}); {example}"
    if parts.scheme not in _PORTS or not parts.hostname:
        return f"{url!r} isn't an http or https URL; {example}"
    if port == 0 or any(char.isspace() or not char.isprintable() for char in url):
        return f"{url!r} isn't a usable URL; {example}"
    return None


def reference_fault(reference: str) -> str | None:
    """Return what is wrong with a path or URL that a server's is to complete; None: nothing."""
    try:
        parts = urlsplit(reference)
        port = parts.port  # parsed only now
    except ValueError as error:
        return f"{reference!r} is no path or URL ({error}); write one such as /sleep?level=1"
    return url_fault(reference) if parts.scheme or port == 0 else None


def listens_on_itself(config: Config, port: int, *, host: str = "") -> ConfigError | None:
    """Return the error of a model or peer that would be the proxy itself, listening on `port`.

    `host` is the address it listens on, if not this machine's own. None when there is none.
    """
    remedies = {"models": "set another startPort or proxy", "peers": "set another proxy"}
    for kind, entries in (("models", config.models), ("peers", config.peers)):
        for id_, entry in entries.items():
            parts = urlsplit(entry.proxy)
            is_here = _is_local(parts) or parts.hostname == host
            if entry.proxy and is_here and _port(parts) == port:
                return ConfigError(
                    f"{kind}.{id_}.proxy: {entry.proxy!r} is where llmsnap itself listens; "
                    f"{remedies[kind]}, or listen on another port than {port}"
                )
    return None


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS.get(parts.scheme, 0)


def _is_local(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
