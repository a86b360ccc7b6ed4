"""Connections that are kept, and for how long."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from llmsnap.config.sections import Timeouts
from llmsnap.core.lifecycle import State
from llmsnap.errors import BadGateway, LlmsnapError
from llmsnap.runtime.upstream import Upstream
from llmsnap.web.upstream import UpstreamConnection
from llmsnap.web.upstream_pool import Pool, Pools
from tests.helpers.certificates import self_signed
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually
from tests.web.lender import view
from tests.web.scripted import Scripted


def upstream(port: int, *, generation: int = 1, host: str = "127.0.0.1") -> Upstream:
    """Where a model listens."""
    return Upstream("a", generation, host, port, "", tls=False, pid=None)


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    """A server that takes connections."""
    async with Scripted.running() as scripted:
        yield scripted


@pytest.fixture
async def pool(server: Scripted) -> AsyncIterator[Pool]:
    """A pool of connections to it."""
    pool = Pool(upstream(server.port), Timeouts())
    yield pool
    pool.close()


async def test_the_one_that_was_used_last_comes_first(pool: Pool) -> None:
    """It is the one least likely to have been closed."""
    first, second = await pool.connect(), await pool.connect()
    pool.release(first, True)
    pool.release(second, True)

    assert pool.take() is second
    assert pool.take() is first
    assert pool.take() is None


async def test_what_cant_be_used_again_is_closed(pool: Pool, server: Scripted) -> None:
    """And never given out."""
    connection = await pool.connect()
    pool.release(connection, False)

    assert pool.take() is None
    await eventually(lambda: server.gone == 1)


async def test_a_connection_that_its_server_closed_is_passed_over(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one serves."""
    pool = Pool(upstream(server.port), Timeouts())
    first, second = await pool.connect(), await pool.connect()
    await eventually(lambda: len(server.lines) == 2)
    pool.release(first, True)
    pool.release(second, True)
    port_of_second = second.transport.get_extra_info("sockname")[1]
    for line in server.lines:
        if line.writer.get_extra_info("peername")[1] == port_of_second:
            line.drop()
    await eventually(lambda: not second.is_open)

    assert pool.take() is first


async def test_a_plain_connection_is_kept_but_briefly(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the next of a series; then its server's thread is free for others."""
    monkeypatch.undo()
    pool = Pool(upstream(server.port), Timeouts())
    pool.release(await pool.connect(), True)

    await eventually(lambda: server.gone == 1)


async def test_idle_connections_are_closed_in_time(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before their server closes them."""
    monkeypatch.setattr("llmsnap.web.upstream_pool.BRIEF_IDLE_S", 0.5)
    pool = Pool(upstream(server.port), Timeouts())
    old, young = await pool.connect(), await pool.connect()
    pool.release(old, True)
    pool.release(young, True)
    assert young.idle_since is not None
    young.idle_since += 3600

    await eventually(lambda: server.gone == 1)
    assert pool.take() is young
    assert not old.is_open
    pool.close()


async def test_an_old_connection_isnt_given_out(server: Scripted) -> None:
    """Even when the sweep is late."""
    pool = Pool(upstream(server.port), Timeouts())
    connection = await pool.connect()
    pool.release(connection, True)
    assert connection.idle_since is not None
    connection.idle_since -= 3600

    assert pool.take() is None
    await eventually(lambda: server.gone == 1)
    pool.close()


async def test_closing_leaves_those_in_use_alone(pool: Pool, server: Scripted) -> None:
    """They are closed after their answer."""
    kept, used = await pool.connect(), await pool.connect()
    pool.release(kept, True)
    pool.close()
    await eventually(lambda: server.gone == 1)

    assert used.is_open
    pool.release(used, True)
    await eventually(lambda: server.gone == 2)


async def test_a_refused_connection_is_a_bad_gateway() -> None:
    """The error names the model and where it was looked for."""
    port = free_port()
    with pytest.raises(BadGateway, match=f"model 'a' at 127.0.0.1:{port}"):
        await Pool(upstream(port), Timeouts()).connect()


async def test_localhost_is_looked_for_once(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a resolver: both loopback addresses are tried, the one that answers is kept."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("no lookup is needed")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    pool = Pool(upstream(server.port, host="localhost"), Timeouts())
    connections = [await pool.connect() for _ in range(2)]

    assert {c.transport.get_extra_info("peername")[0] for c in connections} == {"127.0.0.1"}
    for connection in connections:
        connection.transport.abort()


async def test_a_new_generation_ends_the_connections_to_the_old(server: Scripted) -> None:
    """No request reaches a process that is gone, or its port's next owner."""
    pools = Pools({"a": Timeouts()})
    here = upstream(server.port)
    old = pools.of(here)
    connection = await old.connect()
    old.release(connection, True)

    assert pools.of(replace(here)) is old
    assert pools.of(upstream(server.port, generation=2)) is not old
    await eventually(lambda: server.gone == 1)
    pools.close()


@pytest.mark.parametrize("state", [State.STOPPING, State.SLEEPING, State.STOPPED])
async def test_a_model_that_isnt_ready_keeps_no_connections(state: State, server: Scripted) -> None:
    """What was kept is closed, and what comes back is too."""
    pools = Pools({"a": Timeouts()})
    pool = pools.of(upstream(server.port))
    kept, used = await pool.connect(), await pool.connect()
    pool.release(kept, True)
    pools.follow(view("a", State.READY), State.STARTING)
    assert kept.is_open

    pools.follow(view("a", state), State.READY)
    pool.release(used, True)

    await eventually(lambda: server.gone == 2)


async def test_a_server_on_another_machine_is_probed_by_the_kernel(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeouts.keepalive` is how often; the loopback needs none."""
    monkeypatch.setattr("llmsnap.web.upstream_pool._LOOPBACK", ())
    probed = await Pool(upstream(server.port), Timeouts(keepalive=7)).connect()
    plain = await Pool(upstream(server.port), Timeouts(keepalive=0)).connect()

    assert _is_probed(probed)
    assert not _is_probed(plain)
    for connection in (probed, plain):
        connection.transport.abort()


def _is_probed(connection: UpstreamConnection) -> bool:
    sock = connection.transport.get_extra_info("socket")
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate for localhost that signs itself, and its key."""
    cert, key = self_signed(tmp_path)
    return str(cert), str(key)


async def test_a_server_behind_tls_is_checked(
    certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the system trusts is asked; any other is refused, and says why."""
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(*certificate)
    server = await asyncio.start_server(_hang_up, "127.0.0.1", 0, ssl=theirs)
    where = replace(upstream(server.sockets[0].getsockname()[1], host="localhost"), tls=True)
    with pytest.raises(BadGateway, match="certificate"):
        await Pool(where, Timeouts()).connect()

    ours = ssl.create_default_context(cafile=certificate[0])
    monkeypatch.setattr("llmsnap.web.upstream_pool._tls_context", lambda: ours)
    connection = await Pool(where, Timeouts()).connect()
    assert connection.transport.get_extra_info("ssl_object") is not None
    connection.transport.abort()
    server.close()


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.mark.parametrize(
    ("timeouts", "reason"),
    [(Timeouts(connect=1), "timeouts.connect"), (Timeouts(tls_handshake=1), "handshake")],
    ids=["connect", "tlsHandshake"],
)
async def test_a_server_that_never_answers_is_given_up(timeouts: Timeouts, reason: str) -> None:
    """The limits are those of the configuration."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        where = replace(upstream(deaf.getsockname()[1]), tls=True)
        with pytest.raises(LlmsnapError, match=reason):
            await Pool(where, timeouts).connect()
