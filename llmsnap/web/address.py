"""Where the proxy listens: addresses as people write them, and the sockets for them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmsnap.errors import ListenFailed
from llmsnap.runtime.ports import holder, local_addresses
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
        wrong = f"{port!r} isn't a port, from 0 to 65535" if port else "no port in it"
        raise ListenFailed(f"can't listen on {text!r}: {wrong}; write for example :8080")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ListenFailed(f"can't listen on {text!r}; write [{host}]:{port}")
    return Address(host if colon else "127.0.0.1", int(port))


async def open_sockets(address: Address) -> list[socket.socket]:
    """Bind and listen on every address that the host means. Raises ListenFailed."""
    sockets: list[socket.socket] = []
    try:
        for family, host in await _places(address):
            port = sockets[0].getsockname()[1] if sockets else address.port
            sockets.append(_open(family, host, port))
    except OSError as error:
        for opened in sockets:
            opened.close()
        reason = await _reason(error, address)
        raise ListenFailed(f"can't listen on {str(address)!r}: {reason}") from error
    return sockets


async def _places(address: Address) -> list[tuple[int, str]]:
    """Return the family and numeric host of each socket to open."""
    if not address.host:
        dual = socket.has_dualstack_ipv6()
        return [(socket.AF_INET6, "::") if dual else (socket.AF_INET, "0.0.0.0")]
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((info[0], str(info[4][0])) for info in found))


def _open(family: int, host: str, port: int) -> socket.socket:
    everywhere = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(
        (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=everywhere
    )


async def _reason(error: OSError, address: Address) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name isn't known ({error.strerror})"
    match error.errno:
        case errno.EADDRINUSE:
            owner = await _owner(address)
            return f"{owner} has the port; end it, or choose another one with --listen"
        case errno.EACCES:
            return "ports below 1024 need more rights; choose another one with --listen"
        case errno.EADDRNOTAVAIL:
            return "this machine doesn't have that address"
        case _:
            return os.strerror(error.errno or 0)


async def _owner(address: Address) -> str:
    """Return what is known of the process that has the port."""
    addresses = await local_addresses(address.host or "localhost")
    found = await holder(addresses or ("127.0.0.1",), address.port)
    if found is None or found.pid is None:
        return "another program"
    return f"{_program(found.argv)} (pid {found.pid})"


def _program(argv: Sequence[str]) -> str:
    """Return the name of a program, of the script when it is run by Python."""
    names = [Path(word).name for word in argv]
    if names and names[0].startswith("python"):
        names = [name for name in names[1:] if not name.startswith("-")] or names
    return names[0] if names else "a program"


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Load the server's certificate and key. Raises ListenFailed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        missing = next((path for path in (certificate, key) if not path.is_file()), None)
        wrong = f"no file {str(missing)!r}" if missing is not None else _said(error)
        raise ListenFailed(
            f"can't use the certificate {str(certificate)!r} with the key {str(key)!r}: {wrong}; "
            "both must be PEM, and belong together"
        ) from error
    return context


def _said(error: OSError) -> str:
    """Return what is wrong, in the words of the system or of OpenSSL."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no PEM in one of them").replace("_", " ").lower()
    return error.strerror or str(error)
