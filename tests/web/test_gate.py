"""The one gate: names of this machine only, keys, preflights; the same for every path."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from llmsnap.errors import Forbidden
from llmsnap.web.envelope import render_errors
from llmsnap.web.gate import Gate, host_name, is_local
from tests.web.serving import Site, serving

KEY, OTHER = "key-one", "key-zwei-ü"


@asynccontextmanager
async def guarded(
    *, keys: tuple[str, ...] = (), hosts: tuple[str, ...] = (), loopback: bool = True
) -> AsyncIterator[Site]:
    """Serve an application with two routes behind the gate."""

    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=f"served {len(await request.read())}")

    gate = Gate(api_keys=keys, allowed_hosts=hosts, loopback=loopback)
    app = web.Application(middlewares=[render_errors, gate.guard])
    app.router.add_route("*", "/v1/models", handler, expect_handler=gate.expect)
    app.router.add_get("/health", handler)
    async with serving(app) as site:
        yield site


def gate(*hosts: str, loopback: bool = True) -> Gate:
    """A gate without keys."""
    return Gate(api_keys=(), allowed_hosts=hosts, loopback=loopback)


# ---- other sites ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "order",
    [
        "GET /unload",
        "POST /api/models/unload",
        "POST /api/models/load/a",
        "POST /models/unload",
        "POST /api/release",
        "POST /api/handover",
        "DELETE /api/sessions",
        "PUT /api/what-comes-next-year",
    ],
)
@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 404), ("", 404)])
async def test_pages_of_other_sites_give_no_orders(order: str, site: str, status: int) -> None:
    """An image or a form on any page could empty the GPU; scripts and our own page may."""
    method, path = order.split()
    headers = {"Sec-Fetch-Site": site} if site else {}
    async with guarded() as proxy:
        answer = await proxy.ask(path, method=method, headers=headers)

    assert answer.status == status


@pytest.mark.parametrize("use", ["POST /v1/chat/completions", "POST /api/chat", "GET /api/models"])
async def test_pages_of_other_sites_are_let_through_to_models(use: str) -> None:
    """Ollama's clients, too; and looking changes nothing."""
    method, path = use.split()
    async with guarded() as proxy:
        answer = await proxy.ask(path, method=method, headers={"Sec-Fetch-Site": "cross-site"})

    assert answer.status == 404  # the gate has let it through to routes that aren't here


async def test_pages_of_other_sites_may_use_models() -> None:
    """Chat pages live anywhere; what they may not do is manage the machine."""
    async with guarded() as proxy:
        answer = await proxy.ask("/v1/models", headers={"Sec-Fetch-Site": "cross-site"})

    assert answer.status == 200


# ---- hosts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost.:8080",
        "app.localhost:8080",
        "127.0.0.1",
        "127.8.9.1:80",
        "[::1]:8080",
        "[::1]",
    ],
)
def test_names_of_this_machine_pass(host: str) -> None:
    """Loopback under all its names, with or without a port."""
    gate().check_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "notlocalhost",
        "192.168.1.5:8080",
        "localhost:80@evil.example",
        "[::1]evil.example",
        "[fe80::1]:8080",
        "127.0.0.1.evil.example",
        "0.0.0.0",
    ],
)
def test_u105_other_names_are_refused_however_often_they_come(host: str) -> None:
    """DNS rebinding makes Origin and Host equal, so the list of names is what protects."""
    door = gate()
    for _ in range(2):
        with pytest.raises(Forbidden, match="allowedHosts") as caught:
            door.check_host(host)

    assert repr(host) in caught.value.message


def test_allowed_hosts_pass_beside_the_local_ones() -> None:
    """A name, a name with a port that doesn't matter, and all names below one."""
    door = gate("llm.lan", "Box.lan:8080", "*.home.arpa")

    for host in ("llm.lan:8080", "box.lan:9", "a.home.arpa", "localhost"):
        door.check_host(host)
    for host in ("home.arpa", "other.lan", "a.b.home.arpa"):
        with pytest.raises(Forbidden):
            door.check_host(host)


async def test_bound_elsewhere_hosts_count_only_when_some_are_listed() -> None:
    """Who listens on a network is asked by names that nobody can know beforehand."""
    stranger = {"Host": "box.example"}
    async with guarded(loopback=False) as site:
        free = await site.ask("/health", headers=stranger)
    async with guarded(loopback=False, hosts=("llm.lan",)) as site:
        bound = await site.ask("/health", headers=stranger)
    async with guarded(hosts=("*",)) as site:
        waived = await site.ask("/health", headers=stranger)

    assert (free.status, bound.status, waived.status) == (200, 403, 200)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nowhere"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_every_path_and_method_is_behind_the_host_check(path: str, method: str) -> None:
    """Open paths, preflights and paths that don't exist included."""
    async with guarded() as site:
        answer = await site.ask(path, method=method, headers={"Host": "evil.example"})

    assert answer.status == 403
    assert answer.json["error"]["code"] == "forbidden"


async def test_a_request_without_host_passes() -> None:
    """HTTP/1.0 checks of load balancers send none, and browsers always do."""
    async with guarded() as site:
        said = await site.exchange(b"GET /health HTTP/1.0\r\n\r\n")

    assert said.startswith(b"HTTP/1.0 200 OK")


@pytest.mark.parametrize(
    ("host", "name"),
    [("A.B:80", "a.b"), ("[::1]:1", "::1"), ("::1", None), ("a b", None), ("", None)],
)
def test_the_name_in_a_host_header(host: str, name: str | None) -> None:
    """Lower case, without port and brackets; what isn't a host has none."""
    assert host_name(host) == name


def test_loopback_addresses_are_local_and_mapped_strangers_are_not() -> None:
    """`is_local` knows addresses from names that look like them."""
    assert is_local("127.0.0.1")
    assert is_local("::1")
    assert not is_local("10.0.0.1")
    assert not is_local("1270.0.1")


# ---- keys --------------------------------------------------------------------------------------


def basic(password: str) -> str:
    """A Basic header with `password`."""
    return "Basic " + base64.b64encode(f"anyone:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"authorization": f"bearer  {KEY} "}, 200),
        ({"Authorization": f"Bearer {OTHER}"}, 200),
        ({"Authorization": basic(KEY)}, 200),
        ({"Authorization": basic(OTHER)}, 200),
        ({"Authorization": basic("wrong")}, 401),
        ({"Authorization": "Basic %%%"}, 401),
        ({"Authorization": "Basic é"}, 401),
        ({"Authorization": "Bearer é"}, 401),
        ({"x-api-key": KEY}, 200),
        ({"x-api-key": KEY[:-1]}, 401),
        ({"Authorization": "Bearer wrong", "x-api-key": KEY}, 401),
        ({"Authorization": "Bearer ", "x-api-key": KEY}, 200),
        ({"Authorization": KEY}, 401),
    ],
    ids=repr,
)
async def test_p18_keys_come_as_bearer_basic_or_x_api_key(
    headers: dict[str, str], status: int
) -> None:
    """Any of the keys by any of the ways; the first way that says something is the one."""
    async with guarded(keys=(KEY, OTHER)) as site:
        answer = await site.ask("/v1/models", headers=headers)

    assert answer.status == status
    if status == 401:
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="llmsnap"'
        assert answer.message == "unauthorized: invalid or missing API key"


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/health", "GET", 200),
        ("/v1/models", "OPTIONS", 204),
        ("/v1/models", "POST", 401),
        ("/nowhere", "GET", 401),
        ("/health/", "GET", 401),
    ],
)
async def test_without_a_key_only_the_open_paths_are_served(
    path: str, method: str, status: int
) -> None:
    """Whether a path exists is nobody's business without a key."""
    async with guarded(keys=(KEY,)) as site:
        answer = await site.ask(path, method=method)

    assert answer.status == status


async def test_without_keys_in_the_configuration_everybody_is_served() -> None:
    """A key that nobody asked for doesn't hurt."""
    async with guarded() as site:
        answer = await site.ask("/v1/models", headers={"Authorization": "Bearer whatever"})

    assert answer.status == 200


# ---- bodies held back ----------------------------------------------------------------------------


def upload(key: str) -> bytes:
    """The head of a request whose body waits for a word from us."""
    return (
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Authorization: Bearer %b\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    ) % key.encode()


async def test_a_body_is_asked_for_only_with_a_key() -> None:
    """`Expect: 100-continue` is answered by the gate's verdict, not before it."""
    async with guarded(keys=(KEY,)) as site:
        let_in = await site.exchange(upload(KEY) + b"body")
        refused = await site.exchange(upload("wrong") + b"body")

    assert let_in.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert let_in.endswith(b"served 4")
    assert refused.startswith(b"HTTP/1.1 401 ")


# ---- preflights ----------------------------------------------------------------------------------


async def test_p17_preflights_are_answered_everywhere_with_the_headers_that_are_tokens() -> None:
    """Names with blanks in them would be another header's value."""
    asked = {"Access-Control-Request-Headers": "X-A, bad header, X-B", "Origin": "http://a.test"}
    async with guarded(keys=(KEY,)) as site:
        answer = await site.ask("/nowhere/at/all", method="OPTIONS", headers=asked)

    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Headers"] == "X-A, X-B"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Access-Control-Allow-Methods"].split(", ") == [
        "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS",
    ]  # fmt: skip
    assert answer.headers["Access-Control-Max-Age"] == "86400"


async def test_u99_a_preflight_that_asks_for_no_headers_gets_the_usual_ones() -> None:
    """So do those whose headers are all refused."""
    async with guarded() as site:
        plain = await site.ask("/v1/models", method="OPTIONS")
        bad = await site.ask(
            "/v1/models", method="OPTIONS", headers={"Access-Control-Request-Headers": "a b"}
        )

    usual = "Content-Type, Authorization, Accept, X-Requested-With"
    assert plain.headers["Access-Control-Allow-Headers"] == usual
    assert bad.headers["Access-Control-Allow-Headers"] == usual


async def test_u103_credentials_are_never_allowed_to_other_origins() -> None:
    """A `*` with credentials would let any page use what the browser knows."""
    asked = {"Origin": "http://evil.test"}
    async with guarded() as site:
        preflight = await site.ask("/v1/models", method="OPTIONS", headers=asked)
        answer = await site.ask("/v1/models", headers=asked)

    assert "Access-Control-Allow-Credentials" not in preflight.headers
    assert not [name for name in answer.headers if name.startswith("Access-Control-")]
