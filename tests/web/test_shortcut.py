"""Inference past the router: quicker, and otherwise the same."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.web.gate import Gate
from llmsnap.web.shortcut import Shortcut
from tests.web.stage import CHAT, staged


async def taken(method: str, path: str, **headers: str) -> str:
    """Which way a request goes."""

    async def serve(_: web.Request) -> web.StreamResponse:
        return web.Response(reason="short")

    async def rest(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(reason="long")

    gate = Gate(api_keys=(), allowed_hosts=(), loopback=True)
    handle = Shortcut([CHAT], serve, gate).before(rest)
    return (await handle(make_mocked_request(method, path, headers=headers))).reason


async def test_posts_to_its_paths_take_it() -> None:
    """And nothing else does, nor what wants to be asked for its body."""
    assert await taken("POST", CHAT) == "short"
    assert await taken("POST", CHAT, Expect="100-continue") == "long"
    assert await taken("GET", CHAT) == "long"
    assert await taken("OPTIONS", CHAT) == "long"
    assert await taken("POST", f"{CHAT}?x=1") == "long"
    assert await taken("POST", "/running") == "long"


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}?long=way"], ids=["short", "long"])
async def test_the_gate_stands_before_it(path: str) -> None:
    """Key and Host are checked as on the long way."""
    models = {"a": ModelConfig(cmd="serve a")}
    async with staged(config=Config(models=models, api_keys=("k",))) as stage:
        async with stage.ask(path=path) as answer:
            assert answer.status == 401
            assert "WWW-Authenticate" in answer.headers
        key = {"Authorization": "Bearer k"}
        async with stage.ask(path=path, headers={**key, "Host": "evil.example"}) as answer:
            assert answer.status == 403
        async with stage.ask(path=path, headers=key) as answer:
            assert answer.status == 200
        assert stage.lender.arrived == [("a", True)]


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}?long=way"], ids=["short", "long"])
async def test_errors_look_the_same(path: str) -> None:
    """In the form that the client accepts."""
    async with staged() as stage:
        async with stage.ask(b'{"model":"b"}', path) as answer:
            assert answer.status == 404
            assert (await answer.json())["error"]["code"] == "not_found"
        async with stage.ask(b'{"model":"b"}', path, headers={"Accept": "text/html"}) as answer:
            assert answer.content_type == "text/html"
