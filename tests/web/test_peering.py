"""Requests that go to other machines."""

from __future__ import annotations

import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import Filters, PeerConfig, Timeouts
from llmsnap.runtime.peers import Network
from llmsnap.web.peering import with_model
from llmsnap.web.proxy import Proxy
from tests.web.lender import FakeLender
from tests.web.scripted import Line, Received, Scripted, say_ok
from tests.web.stage import CHAT, staged

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        (b"/x", b"/x"),
        (b"/x?model=a/b&n=1", b"/x?model=a%2Fb&n=1".replace(b"a%2Fb", b"m%20n")),
        (b"/x?n=1&model=", b"/x?n=1&model=m%20n"),
        (b"/x?the_model=1", b"/x?the_model=1"),
    ],
)
def test_the_query_gets_the_peers_name(target: bytes, sent: bytes) -> None:
    """Where it names a model."""
    assert with_model(target, "m n") == sent


async def asked(peer: PeerConfig, headers: dict[str, str], **settings: object) -> Received:
    """Ask a peer on a scripted server for its model `m`; return what it received."""
    async with Scripted.running(say_ok) as server:
        url = f"http://localhost:{server.port}{peer.proxy}"
        peers = {
            "box": PeerConfig(
                proxy=url, models=peer.models, api_key=peer.api_key, filters=peer.filters
            )
        }
        config = Config(models={"a": ModelConfig(cmd="x")}, peers=peers, **settings)  # type: ignore[arg-type]
        async with staged(config=config, up=False, network=True) as stage:
            body = b'{ "model":"box/m", "n":1.0}'
            async with stage.ask(body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                assert answer.headers["X-Llmsnap-Model"] == "box/m"
        return server.received[-1]


async def test_the_peer_gets_its_own_name_host_and_key() -> None:
    """In place of the client's; the rest of the body isn't touched."""
    peer = PeerConfig(proxy="/base", models=("m",), api_key="k2")
    received = await asked(peer, {"Authorization": "Bearer mine", "X-Forwarded-For": "1.2.3.4"})

    assert received.target == f"/base{CHAT}"
    assert received.body == b'{ "model":"m", "n":1.0}'
    assert received.all("authorization") == ["Bearer k2"]
    assert received.all("x-api-key") == ["k2"]
    assert received.all("x-forwarded-for") == []
    assert received["host"].startswith("localhost:")
    assert received["via"].startswith("1.1 llmsnap-")


async def test_without_a_key_of_the_peers_the_clients_passes() -> None:
    """Unless it is the proxy's own."""
    peer = PeerConfig(proxy="", models=("m",))
    received = await asked(peer, {"x-api-key": "theirs", "Via": "1.1 front"})
    assert received["x-api-key"] == "theirs"
    assert received["via"].startswith("1.1 front, 1.1 llmsnap-")

    received = await asked(peer, {"x-api-key": "ours"}, api_keys=("ours",))
    assert received.all("x-api-key") == []


async def test_a_peers_filters_are_applied() -> None:
    """As those of models, by the name that was asked for."""
    filters = Filters(strip_params=("n",), set_params_by_id={"box/m": {"x": 1}})
    peer = PeerConfig(proxy="", models=("m",), filters=filters)

    assert (await asked(peer, {})).body == b'{ "model":"m","x":1}'


async def test_a_request_that_was_here_before_goes_no_further() -> None:
    """It would go round for ever."""
    peers = {"box": PeerConfig(proxy="http://127.0.0.1:1", models=("m",))}
    async with staged(config=Config(peers=peers), up=False, network=True) as stage:
        mark = stage.proxy.mark
        async with stage.ask(b'{"model":"m"}', headers={"Via": f"1.1 x, 1.1 {mark}"}) as answer:
            assert answer.status == 508
            assert (await answer.json())["error"]["code"] == "loop_detected"


async def test_a_peer_that_is_too_slow() -> None:
    """`timeouts.responseHeader` is the peer's own."""

    async def silent(_: Received, line: Line) -> None:
        await line.gone()

    async with Scripted.running(silent) as server:
        peer = PeerConfig(
            proxy=f"http://127.0.0.1:{server.port}",
            models=("m",),
            timeouts=Timeouts(response_header=1),
        )
        async with staged(config=Config(peers={"box": peer}), up=False, network=True) as stage:
            async with stage.ask(b'{"model":"m"}') as answer:
                assert answer.status == 504
                assert "'box/m'" in (await answer.json())["error"]["message"]


async def test_models_here_are_lent_as_ever() -> None:
    """By the lender of this machine, of which all else is asked, too."""
    lender = FakeLender()
    network = Network(lender, {"box": PeerConfig(proxy="https://box", models=("m",))})
    lender.put_up("a", 1)

    async with network.lease("a", limited=False) as lease:
        assert lease.upstream.port == 1
    assert lender.arrived == [("a", False)]
    assert network.upstream("a") == lender.upstream("a")
    assert network.view("a") == lender.view("a")
    network.stalled("a", 1)
    network.stalled("box/m", 0)
    assert lender.ended == [("a", 1)]
    network.deaf("a", 1)
    network.deaf("box/m", 0)
    assert lender.deafened == [("a", 1)]
    async with network.lease("box/m") as lease:
        assert (lease.upstream.host, lease.upstream.port, lease.upstream.tls) == ("box", 443, True)
    assert isinstance(Proxy(Config(), network), Proxy)
