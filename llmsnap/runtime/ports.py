"""Who listens where: whether a port is free, and if not, whose it is."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmsnap.config.secrets import blank_argv
from llmsnap.errors import LlmsnapError
from llmsnap.runtime.proctable import ON_LINUX, command_line

_LOOPBACK: Final = ("127.0.0.1", "::1")
_CONNECT_S: Final = 0.5
_LISTEN: Final = "0A"
_LAST_PORT: Final = 65535
_SHOWN_COMMAND: Final = 200


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a port; what couldn't be found out is missing."""

    pid: int | None = None
    argv: tuple[str, ...] = ()


async def local_addresses(host: str) -> tuple[str, ...]:
    """Return the addresses that `host` means, if they are this machine's own; else none.

    `localhost` is both loopback addresses, whatever /etc/hosts says.
    """
    if host == "localhost":
        return _LOOPBACK
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return ()  # a name that only exists once its container runs
    addresses = [str(info[4][0]) for info in found]
    return tuple(address for address in dict.fromkeys(addresses) if _is_ours(address))


async def holder(addresses: Iterable[str], port: int) -> Holder | None:
    """Return who listens on `port` of one of `addresses`; None when nobody does."""
    for address in addresses:
        if await _answers(address, port):
            return await asyncio.to_thread(_find_holder, address, port)
    return None


async def taken(host: str, port: int) -> str | None:
    """Return what keeps a server from listening on `port` of `host`, in words; None: nobody."""
    other = await holder(await local_addresses(host), port)
    if other is None:
        return None
    return (
        f"port {port} is taken by {_described(other)}; end that process, or give the model another "
        "port (`startPort`, `proxy`)"
    )


def is_written_as_ours(host: str) -> bool:
    """Whether `host` means this machine's loopback by how it is written: no name is looked up."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listens(pids: Collection[int], addresses: Iterable[str], port: int) -> bool:
    """Whether one of `pids` listens on `port` of one of `addresses`.

    False as well where the kernel doesn't let us see.
    """
    if ON_LINUX:
        wanted = set(_listening_inodes(addresses, port))
        return bool(wanted) and any(wanted & set(_socket_inodes(pid)) for pid in pids)
    return any(_psutil_listens(pid, port) for pid in pids)


def free_ports(count: int, *, first: int) -> int:
    """Return the first of `count` neighbouring ports of 127.0.0.1, from `first` up, nobody's yet.

    Raises LlmsnapError when there are none.
    """
    for start in range(first, _LAST_PORT - count + 2, count):
        if all(_is_free(port) for port in range(start, start + count)):
            return start
    raise LlmsnapError(f"no {count} free ports in a row from {first} up; end what has them")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _is_ours(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return True
    return False


async def _answers(address: str, port: int) -> bool:
    """Whether something takes connections there; one that neither does nor refuses counts too."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(address, port)
    except TimeoutError:
        # Or this process stood still just then: the kernel knows.
        return not ON_LINUX or any(_listening_inodes([address], port))
    except OSError:
        return False
    # A connection to a port that nobody has may meet itself, when that port happens to be its own.
    met_itself = writer.get_extra_info("sockname") == writer.get_extra_info("peername")
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return not met_itself


def _described(other: Holder) -> str:
    if other.pid is None:
        return "a process that can't be seen from here"
    command = " ".join(blank_argv(other.argv))
    return f"pid {other.pid} ({command[:_SHOWN_COMMAND]})"


def _find_holder(address: str, port: int) -> Holder:
    if not ON_LINUX:
        return _psutil_holder(port)
    wanted = set(_listening_inodes([address], port))
    for name in os.listdir("/proc"):
        if name.isdigit() and wanted & set(_socket_inodes(int(name))):
            return Holder(int(name), command_line(int(name)))
    return Holder()


def _listening_inodes(addresses: Iterable[str], port: int) -> Iterator[str]:
    """Yield the sockets that take what is sent to `port` of one of `addresses`."""
    wanted = {ipaddress.ip_address(address) for address in addresses}
    anywhere = any(address.is_unspecified for address in wanted)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                place, _, hex_port = fields[1].rpartition(":")
                if fields[3] != _LISTEN or int(hex_port, 16) != port:
                    continue
                address = _address_from_proc(place)
                if anywhere or address in wanted or address.is_unspecified:
                    yield fields[9]


def _address_from_proc(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Decode an address as /proc/net writes it: words of four bytes, each in host order."""
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _socket_inodes(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                target = os.readlink(f"{folder}/{name}")
                if target.startswith("socket:["):
                    yield target[8:-1]


def _psutil_listens(pid: int, port: int) -> bool:
    import psutil

    with suppress(psutil.Error):
        return any(
            c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port
            for c in psutil.Process(pid).net_connections("tcp")
        )
    return False


def _psutil_holder(port: int) -> Holder:
    import psutil

    for pid in psutil.pids():
        if _psutil_listens(pid, port):
            return Holder(pid, command_line(pid))
    return Holder()
