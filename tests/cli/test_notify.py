"""What systemd hears of us."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmsnap.cli.notify import Service
from tests.helpers.proxy_process import running_proxy

CONFIG = "models: {a: {cmd: sleep 100, proxy: 'http://127.0.0.1:1'}}"


@asynccontextmanager
async def listening(address: str) -> AsyncIterator[asyncio.Queue[str]]:
    """What is told at `address`."""
    told: asyncio.Queue[str] = asyncio.Queue()

    class Manager(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            told.put_nowait(data.decode())

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Manager, sock=sock)
        yield told
        transport.close()


@pytest.mark.parametrize("name", ["{folder}/notify", "@llmsnap-test-{pid}"])
async def test_it_is_ready_and_goes_on_being_alive(tmp_path: Path, name: str) -> None:
    """At twice the rate that is asked for; by a file, or by Linux' names without one."""
    address = name.format(folder=tmp_path, pid=os.getpid())
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000", "PATH": "/bin"}
    async with listening(address.replace("@", "\0")) as told:
        Service(environ).ready()
        async with asyncio.timeout(30):
            heard = [await told.get() for _ in range(4)]

    assert heard == ["READY=1", *["WATCHDOG=1"] * 3]
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "/nowhere/at/all"},
    ],
)
async def test_nobody_listens(environ: dict[str, str]) -> None:
    """Or it is another process that is watched: that is no fault."""
    service = Service(environ)
    service.ready()
    assert service.period_s == 0


@pytest.mark.e2e
async def test_the_command_line_tells_it(tmp_path: Path) -> None:
    """Once it listens."""
    address = str(tmp_path / "notify")
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}
    async with listening(address) as told:
        async with running_proxy(CONFIG, tmp_path, env=environ):
            async with asyncio.timeout(30):
                assert await told.get() == "READY=1"
                assert await told.get() == "WATCHDOG=1"
