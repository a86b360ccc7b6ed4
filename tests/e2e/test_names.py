"""Names that stand for others, through the real command line; rows by their numbers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

TOGETHER = "groups: {g: {swap: false, members: [a, b]}}\nmemory: {mode: off}\n"


@pytest.fixture
def fake(tmp_path: Path) -> FakeModels:
    """An empty configuration over fake servers."""
    return FakeModels(tmp_path)


async def switch(proxy: ProxyProcess, body: str) -> tuple[int, dict[str, Any]]:
    """Order a change of the active profile."""
    headers = {"Content-Type": "application/json"}
    async with proxy.session.put("/api/profiles/active", data=body, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_p56_a_profile_pins_names(fake: FakeModels, tmp_path: Path) -> None:
    """While it is active, small is b and nothing is nobody; then all is as before."""
    fake.head = "profiles: {p: {description: Test, pins: {small: b, nothing: ~}}}"
    fake.add("small").add("b").add("nothing")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        _, shown = await proxy.get("/api/profiles")
        assert shown == {
            "active": None,
            "profiles": [
                {"id": "p", "description": "Test", "pins": {"small": "b", "nothing": None}}
            ],
        }
        assert await switch(proxy, '{"name": "p"}') == (200, {"active": "p"})
        answer = await proxy.chat("small")
        assert answer["model"] == "b"
        assert (fake.count("b", "request"), fake.count("small", "request")) == (1, 0)
        status, refused = await proxy.post("/v1/chat/completions", {"model": "nothing"})
        assert status == 404
        assert "profile 'p' makes 'nothing' unavailable" in refused["error"]["message"]
        _, seen = await proxy.get("/upstream/small/x")
        assert fake.count("b", "request") == 2, seen

        assert await switch(proxy, '{"name": null}') == (200, {"active": None})
        assert (await proxy.chat("small"))["model"] == "small"
        for body in ("{", "{}", '{"name": 1}'):
            assert (await switch(proxy, body))[0] == 400
        assert (await switch(proxy, '{"name": "x"}'))[0] == 404


async def test_p57_warm_takes_what_is_up(fake: FakeModels, tmp_path: Path) -> None:
    """None is ready: the first. b is: b. The server sees the target's name."""
    fake.head = "selectors: {any: {strategy: warm, targets: [a, b]}}"
    fake.add("a").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.chat("any"))["model"] == "a"
        await proxy.chat("b")
        assert (await proxy.chat("any"))["model"] == "b"
        status, _ = await proxy.get("/upstream/any/x")
        assert status == 404


async def test_p58_spillover_uses_a_further_model_when_one_is_busy(
    fake: FakeModels, tmp_path: Path
) -> None:
    """The first request goes to a, the second at the same time to b."""
    fake.head = TOGETHER + "selectors: {any: {strategy: spillover, targets: [a, b]}}"
    fake.add("a", "--first-byte 3").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        first = asyncio.ensure_future(proxy.chat("any"))
        await eventually(lambda: fake.count("a", "request") > 0)
        second = await proxy.chat("any")
        assert second["model"] == "b"
        assert (await first)["model"] == "a"
