from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

import pytest

from llmsnap.errors import LlmsnapError
from llmsnap.runtime import ports, proctable
from llmsnap.runtime.ports import Holder, free_ports, holder, listens, local_addresses
from tests.helpers.ports import free_port
from tests.helpers.ports import free_ports as own_ports
from tests.helpers.waiting import eventually
from tests.runtime.rig import serve_argv

LOOPBACK = ("127.0.0.1", "::1")


@contextmanager
def serving(port: int) -> Iterator[int]:
    """A stranger that listens on `port`; yields its pid."""
    with subprocess.Popen(serve_argv(port), stdout=subprocess.DEVNULL) as process:
        yield process.pid
        process.kill()


@pytest.fixture(params=["proc", "psutil"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to look into other processes."""
    on_linux = request.param == "proc"
    if on_linux and not proctable.ON_LINUX:
        pytest.skip("no /proc here")
    monkeypatch.setattr(ports, "ON_LINUX", on_linux)
    monkeypatch.setattr(proctable, "ON_LINUX", on_linux)


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("localhost", LOOPBACK),
        ("127.0.0.1", ("127.0.0.1",)),
        ("0.0.0.0", ("0.0.0.0",)),
        ("192.0.2.7", ()),
        ("no-such-host.invalid", ()),
    ],
)
async def test_addresses_of_this_machine(host: str, addresses: tuple[str, ...]) -> None:
    """A place elsewhere, or a name that isn't there yet, is none of ours."""
    assert await local_addresses(host) == addresses


async def test_a_free_port_has_no_holder() -> None:
    """Nobody listens, nobody is named."""
    assert await holder(LOOPBACK, free_port()) is None


@pytest.mark.usefixtures("reader")
async def test_a_taken_port_names_pid_and_command() -> None:
    """That is what the user needs to end the other one."""
    port = free_port()
    with serving(port) as pid:

        async def found() -> bool:
            return await holder(LOOPBACK, port) == Holder(pid, serve_argv(port))

        await eventually(found)


@pytest.mark.usefixtures("reader")
async def test_who_listens() -> None:
    """Only the process that has the port, and only on that port."""
    port = free_port()
    with serving(port) as pid:
        await eventually(lambda: listens({pid}, LOOPBACK, port))
        assert listens({os.getpid(), pid}, LOOPBACK, port)
        assert not listens({os.getpid()}, LOOPBACK, port)
        assert not listens({pid}, LOOPBACK, port + 1)
        assert not listens(set(), LOOPBACK, port)


async def test_a_listener_that_answers_nobody_counts() -> None:
    """A full backlog refuses no one, and the port is taken all the same."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        pending = [socket.socket() for _ in range(4)]
        for client in pending:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        assert await holder(["127.0.0.1"], port) == Holder(os.getpid(), tuple(own_argv()))
        for client in pending:
            client.close()


async def test_an_answer_that_came_too_late_takes_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine stood still while somebody was asked for: nobody is there all the same."""
    if not proctable.ON_LINUX:
        pytest.skip("who listens is read from /proc, which only Linux has")

    async def never(*_: object) -> object:
        return await asyncio.Event().wait()

    monkeypatch.setattr(ports, "_CONNECT_S", 0.01)
    monkeypatch.setattr(asyncio, "open_connection", never)
    assert await holder(LOOPBACK, free_port()) is None


def own_argv() -> tuple[str, ...]:
    """The words this process was started with."""
    return proctable.command_line(os.getpid())


async def test_a_connection_that_meets_itself_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port among those that clients get may be the very one the question is asked from."""
    port = free_port()
    connect = asyncio.open_connection

    def from_that_port(host: str, port: int) -> Awaitable[object]:
        return connect(host, port, local_addr=("127.0.0.1", port))

    monkeypatch.setattr(asyncio, "open_connection", from_that_port)
    assert await holder(["127.0.0.1"], port) is None


@pytest.mark.parametrize(
    ("address", "asked", "counts"),
    [
        ("127.0.0.1", ["127.0.0.1"], True),
        ("127.0.0.1", ["::1"], False),
        ("0.0.0.0", ["127.0.0.1"], True),
        ("::", ["127.0.0.1"], True),
        ("::1", ["::1"], True),
        ("127.0.0.2", ["127.0.0.1"], False),
        ("127.0.0.1", ["0.0.0.0"], True),
    ],
)
async def test_addresses_and_wildcards(address: str, asked: list[str], counts: bool) -> None:
    """A listener elsewhere doesn't take what is sent here; one on a wildcard does."""
    if not proctable.ON_LINUX:
        pytest.skip("who listens is read from /proc, which only Linux has")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        assert listens({os.getpid()}, asked, port) is counts


def test_ports_that_others_have_are_passed_over() -> None:
    """A server of the user's own is no reason to fail; at the end of all ports there are none."""
    first = free_ports(2, first=own_ports(4))
    with socket.create_server(("127.0.0.1", first + 1)):
        assert free_ports(2, first=first) > first + 1
    with pytest.raises(LlmsnapError, match="no 2 free ports"):
        free_ports(2, first=65_535)
