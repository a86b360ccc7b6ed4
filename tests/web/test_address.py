"""Where the proxy listens: what people write, and what they hear when it can't be had."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path

import pytest

from llmsnap.errors import ListenFailed
from llmsnap.web.address import Address, open_sockets, parse_address, tls_context
from tests.helpers.ports import free_port


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("8000", "127.0.0.1", 8000, True),
        (":8000", "", 8000, False),
        ("localhost:8000", "localhost", 8000, True),
        ("127.0.0.1:0", "127.0.0.1", 0, True),
        ("[::1]:8000", "::1", 8000, True),
        ("[::]:8000", "::", 8000, False),
        ("0.0.0.0:8000", "0.0.0.0", 8000, False),
        ("box.lan:8000", "box.lan", 8000, False),
        (" 127.0.0.1:8000 ", "127.0.0.1", 8000, True),
    ],
)
def test_addresses_as_people_write_them(text: str, host: str, port: int, loopback: bool) -> None:
    """A bare port is loopback, an empty host every interface."""
    address = parse_address(text)

    assert address == Address(host, port)
    assert address.is_loopback is loopback


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", ":x", "1:65536", "::1:80", ":-1"])
def test_what_is_no_address_is_told(text: str) -> None:
    """With what would be one."""
    with pytest.raises(ListenFailed, match="write"):
        parse_address(text)


def test_a_port_that_is_none_is_named() -> None:
    """A number that is too large was at least meant to be one."""
    with pytest.raises(ListenFailed, match="'65536' isn't a port, from 0 to 65535"):
        parse_address("1:65536")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (Address("127.0.0.1", 80), "http://127.0.0.1:80"),
        (Address("", 80), "http://localhost:80"),
        (Address("0.0.0.0", 80), "http://localhost:80"),
        (Address("::1", 80), "http://[::1]:80"),
    ],
)
def test_an_address_has_a_url_to_click_on(address: Address, url: str) -> None:
    """Every interface is `localhost` from here."""
    assert address.url(tls=False) == url
    assert address.url(tls=True) == url.replace("http:", "https:")


def reaches(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


async def test_every_interface_means_both_protocols() -> None:
    """One socket takes IPv4 and IPv6, where there is IPv6."""
    (opened,) = await open_sockets(Address("", 0))
    with opened:
        port = opened.getsockname()[1]

        assert reaches("127.0.0.1", port)
        if socket.has_dualstack_ipv6():
            assert reaches("::1", port)


async def test_a_name_means_all_its_addresses_on_one_port() -> None:
    """Whichever of them a client tries first."""
    sockets = await open_sockets(Address("localhost", 0))
    ports = {each.getsockname()[1] for each in sockets}
    hosts = {each.getsockname()[0] for each in sockets}
    for each in sockets:
        each.close()

    assert len(ports) == 1
    assert hosts <= {"127.0.0.1", "::1"}


async def test_a_taken_port_names_who_has_it() -> None:
    """Here it is this very process."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ListenFailed) as caught:
            await open_sockets(Address("127.0.0.1", port))

    assert f"pid {os.getpid()}" in caught.value.message
    assert "--listen" in caught.value.message
    assert str(port) in caught.value.message


async def test_what_was_opened_is_closed_when_the_rest_cant_be() -> None:
    """A half-open proxy would be found by some clients only."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("there is only one loopback address")
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ListenFailed),
    ):
        await open_sockets(Address("localhost", port))

    assert not reaches("::1", port)


@pytest.mark.parametrize(
    ("host", "reason"),
    [("no-such-name.invalid", "isn't known"), ("192.0.2.1", "doesn't have that address")],
)
async def test_a_host_that_isnt_ours_is_told(host: str, reason: str) -> None:
    """A name nobody knows, an address of another machine."""
    with pytest.raises(ListenFailed, match=reason):
        await open_sockets(Address(host, 0))


def test_a_certificate_that_cant_be_used_is_told(tmp_path: Path) -> None:
    """Missing, or not one; with what it should be."""
    missing, broken = tmp_path / "missing.pem", tmp_path / "broken.pem"
    broken.write_text("no certificate")

    for pair, wrong in (
        ((missing, broken), f"no file '{missing}'"),
        ((broken, missing), f"no file '{missing}'"),
        ((broken, broken), "pem"),
    ):
        with pytest.raises(ListenFailed, match=f"{wrong}.*; both must be PEM, and") as caught:
            tls_context(*pair)
        assert isinstance(caught.value.__cause__, OSError | ssl.SSLError)
