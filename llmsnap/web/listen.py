"""Where the proxy listens: addresses as people write them, and the sockets for them."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmsnap.errors import ListenFailed
from llmsnap.web.gate import is_local

BACKLOG: Final = 1024


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port to listen on; host `""` means every interface."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_local(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def url(self, *, tls: bool) -> str:
        """Return the URL under which somebody on this machine reaches it."""
        here = Address("localhost" if self.host in ("", "0.0.0.0", "::") else self.host, self.port)
        return f"{'https' if tls else 'http'}://{here}"


def parse_address(text: str) -> Address:
    """Read `8000`, `:8000`, `host:8000` or `[::1]:8000`.

    A bare port means loopback; an empty host, as in Go, every interface. Raises ListenFailed.
    """
    host, colon, port = text.strip().rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ListenFailed(f"can't listen on {text!r}: no port in it; write for example :8080")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ListenFailed(f"can't listen on {text!r}; write [{host}]:{port}")
    return Address(host if colon else "127.0.0.1", int(port))


def open_sockets(address: Address) -> list[socket.socket]:
    """Bind and listen on every address that the host means. Raises ListenFailed."""
    if not address.host:
        return [_open(address, _any_family(), dualstack=socket.has_dualstack_ipv6())]
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        reason = f"the name isn't known ({error.strerror})"
        raise ListenFailed(f"can't listen on {str(address)!r}: {reason}") from error
    sockets: list[socket.socket] = []
    try:
        for family, host in dict.fromkeys((info[0], str(info[4][0])) for info in found):
            port = sockets[0].getsockname()[1] if sockets else address.port
            sockets.append(_open(Address(host, port), family))
    except ListenFailed:
        for opened in sockets:
            opened.close()
        raise
    return sockets


def _any_family() -> socket.AddressFamily:
    return socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET


def _open(
    address: Address, family: socket.AddressFamily, *, dualstack: bool = False
) -> socket.socket:
    place = (address.host, address.port)
    try:
        return socket.create_server(place, family=family, backlog=BACKLOG, dualstack_ipv6=dualstack)
    except OSError as error:
        raise ListenFailed(
            f"can't listen on {str(address)!r}: {_reason(error, address)}"
        ) from error


def _reason(error: OSError, address: Address) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            owner = port_owner(address.port) or "another program"
            return f"{owner} has the port; end it, or choose another one with --listen"
        case errno.EACCES:
            return "ports below 1024 need more rights; choose another one with --listen"
        case errno.EADDRNOTAVAIL:
            return "this machine doesn't have that address"
        case _:
            return os.strerror(error.errno or 0)


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Load the server's certificate and key. Raises ListenFailed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ListenFailed(f"can't use {str(certificate)!r} with {str(key)!r}: {error}") from error
    return context
