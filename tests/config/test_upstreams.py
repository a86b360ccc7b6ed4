"""Where the models' servers listen."""

from __future__ import annotations

import pytest

from llmsnap.config.upstreams import listens_on_itself, url_fault
from llmsnap.errors import ConfigError
from tests.config.reading import read


@pytest.mark.parametrize(
    "proxy",
    ["http://localhost:8080", "http://127.0.0.1:8080/v1", "http://[::1]:8080", "http://0.0.0.0:8080",
     "http://LOCALHOST:8080", "http://a.localhost:8080", "http://127.8.9.1:8080"],
)  # fmt: skip
def test_u39_a_model_where_the_proxy_itself_listens(proxy: str) -> None:
    """It would send requests to itself for ever, so it is refused."""
    config = read(
        f"models: {{a: {{cmd: z, proxy: 'http://h:1'}}, b: {{cmd: z, proxy: '{proxy}'}}}}"
    )

    error = listens_on_itself(config, 8080)

    assert isinstance(error, ConfigError)
    assert str(error).startswith(f"models.b.proxy: '{proxy}' is where llmsnap itself listens; set ")
    assert listens_on_itself(config, 8081) is None


def test_u39_by_a_port_that_is_counted_up() -> None:
    """`${PORT}` may reach the proxy's own port."""
    config = read("startPort: 8079\nmodels: {a: {cmd: 'z ${PORT}'}, b: {cmd: 'z ${PORT}'}}")

    error = listens_on_itself(config, 8080)

    assert error is not None
    assert "models.b.proxy" in str(error)


def test_a_peer_where_the_proxy_itself_listens() -> None:
    """It would be its own peer."""
    config = read("peers: {me: {proxy: 'http://localhost:8080', models: [m]}}")

    error = listens_on_itself(config, 8080)

    assert error is not None
    assert str(error).startswith("peers.me.proxy: 'http://localhost:8080' is where llmsnap itself")


@pytest.mark.parametrize(
    ("proxy", "port"),
    [("http://example.org:8080", 8080), ("http://10.0.0.7:8080", 8080), ("https://localhost", 80)],
)
def test_another_machine_or_port_is_fine(proxy: str, port: int) -> None:
    """The same port elsewhere is another server."""
    assert listens_on_itself(read(f"models: {{a: {{cmd: z, proxy: '{proxy}'}}}}"), port) is None


def test_ports_that_are_not_written() -> None:
    """http means 80, https 443."""
    config = read("models: {a: {cmd: z, proxy: 'https://localhost'}}")

    assert listens_on_itself(config, 443) is not None


def test_a_model_without_server_is_fine() -> None:
    """It can't be asked for anything."""
    assert url_fault("") is not None
    assert listens_on_itself(read(""), 8080) is None
