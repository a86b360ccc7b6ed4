"""The stream of all that happens, over a real proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e


class Listener:
    """A client that keeps what it is told."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.told: list[tuple[str, Any]] = []
        self.ended = False
        self._answer = answer

    async def listen(self) -> None:
        """Take events apart until the stream ends."""
        async for line in self._answer.content:
            if line.startswith(b"data:"):
                outer = json.loads(line.removeprefix(b"data:"))
                self.told.append((outer["type"], json.loads(outer["data"])))
        self.ended = True

    def of(self, kind: str) -> list[Any]:
        """What was told of that kind."""
        return [data for type_, data in self.told if type_ == kind]

    async def hears(self, condition: Callable[[Listener], bool]) -> None:
        """Wait until what was told fulfils `condition`."""
        await eventually(lambda: condition(self))


@asynccontextmanager
async def listening(proxy: ProxyProcess) -> AsyncIterator[Listener]:
    """A client of the stream."""
    async with proxy.session.get("/api/events") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["X-Accel-Buffering"] == "no"
        listener = Listener(answer)
        task = asyncio.ensure_future(listener.listen())
        try:
            yield listener
        finally:
            task.cancel()


async def test_p54_who_connects_is_told_all_that_is_the_case(tmp_path: Path) -> None:
    """Both logs, models, settings of the page, profile, requests: in this order."""
    fake = FakeModels(tmp_path, head="ui: {activity: {session_id: [X-Chat]}}")
    fake.add("b", more="name: The B\naliases: [bee]").add("a", more="unlisted: true")
    async with running_proxy(fake.yaml, tmp_path) as proxy, listening(proxy) as listener:
        await listener.hears(lambda heard: len(heard.told) >= 6)
        kinds = [kind for kind, _ in listener.told[:6]]
        (models,) = listener.of("modelStatus")

    assert kinds == [
        "logData",
        "logData",
        "modelStatus",
        "uiConfig",
        "profileChanged",
        "inflight",
    ]
    assert [data["source"] for data in listener.of("logData")[:2]] == ["proxy", "upstream"]
    assert models[0] == {
        "id": "a",
        "name": "",
        "description": "",
        "state": "stopped",
        "unlisted": True,
        "peerID": "",
    }
    assert (models[1]["name"], models[1]["aliases"]) == ("The B", ["bee"])
    assert listener.of("uiConfig") == [{"activity": {"session_id": ["X-Chat"]}}]
    assert listener.of("profileChanged") == [{"active": None}]
    assert listener.of("inflight") == [{"operation": "snapshot", "requests": []}]


async def test_what_happens_is_told(tmp_path: Path) -> None:
    """States, logs, the request under way without its key, and its row."""
    fake = FakeModels(tmp_path).add("a", "--gap 0.1 --chunks 10")
    async with running_proxy(fake.yaml, tmp_path) as proxy, listening(proxy) as listener:
        body = {"model": "a", "stream": True, "messages": []}
        headers = {"X-Session-ID": "s1", "Authorization": "Bearer secret"}
        async with proxy.session.post("/v1/chat/completions", json=body, headers=headers) as answer:
            await answer.read()
        await listener.hears(lambda heard: bool(heard.of("activity")))
        await listener.hears(
            lambda heard: any(one["operation"] == "remove" for one in heard.of("inflight"))
        )

    states = [models[0]["state"] for models in listener.of("modelStatus")]
    begun = [one["request"] for one in listener.of("inflight") if one["operation"] == "upsert"]
    assert states == ["stopped", "starting", "ready"]
    assert begun[0]["model"] == "a"
    assert begun[0]["req_headers"]["X-Session-ID"] == "s1"
    assert begun[0]["req_headers"]["Authorization"] == "[REDACTED]"
    assert listener.of("activity") == [{"id": 1}]
    told = "".join(data["data"] for data in listener.of("logData") if data["source"] == "proxy")
    assert told.count("model a: started in ") == 1
    assert not any("secret" in json.dumps(data) for _, data in listener.told)


async def test_listeners_dont_hold_up_the_end(tmp_path: Path) -> None:
    """They hear the last lines, and their stream ends whole."""
    async with running_proxy("models: {}\n", tmp_path) as proxy, listening(proxy) as listener:
        await listener.hears(lambda heard: len(heard.told) >= 6)
        assert await proxy.stop() == 0
        await listener.hears(lambda heard: heard.ended)

    assert "shutting down" in "".join(data["data"] for data in listener.of("logData"))


PROBES = (
    *(
        "/health",
        "/v1/models",
        "/models",
        "/running",
        "/props",
        "/api/tags",
        "/favicon.ico",
        "/ui/",
    ),
    *("/metrics", "/api/models", "/api/devices", "/api/status", "/api/performance", "/logs"),
    *(
        "/api/swaps",
        "/api/activity",
        "/api/metrics/activity",
        "/api/metrics/stats",
        "/api/inflight",
    ),
)
OF_MODELS = ("health", "props", "slots", "metrics", "v1/models", "models")
OF_PAGES = ("favicon.ico", "app.js", "x/style.css")
"""What a browser goes on asking for; an answer of the model's own counts as a use of it."""


async def test_a11_a12_probes_of_all_kinds_swap_and_hold_nothing(tmp_path: Path) -> None:
    """One model is up and one isn't: that stays so, until the first has been idle for its time."""
    fake = FakeModels(tmp_path).add("a", more="ttl: 2").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.post("/v1/completions", {"model": "a", "prompt": "x"})

        async def probed() -> bool:
            for path in (*PROBES, *(f"/props?model={name}" for name in "ab")):
                await proxy.get(path)
            for path in OF_MODELS:
                await proxy.get(f"/upstream/a/{path}")
            for path in (*OF_MODELS, *OF_PAGES):
                assert (await proxy.get(f"/upstream/b/{path}"))[0] == 409
            return await proxy.state("a") == "stopped"

        await eventually(probed)
        assert await proxy.state("b") == "stopped"
    assert (fake.count("a", "start"), fake.count("b", "start")) == (1, 0)


async def test_a12_listening_and_looking_wake_no_model(tmp_path: Path) -> None:
    """Nor do they count as use: the model is stopped when its time has come."""
    fake = FakeModels(tmp_path).add("a", more="ttl: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy, listening(proxy) as listener:
        await proxy.post("/v1/completions", {"model": "a", "prompt": "x"})

        async def stopped() -> bool:
            await proxy.get("/api/swaps")
            await proxy.get("/api/metrics/activity")
            await proxy.get("/api/metrics/stats")
            return await proxy.state("a") == "stopped"

        await eventually(stopped)
        await listener.hears(lambda heard: heard.of("modelStatus")[-1][0]["state"] == "stopped")
        await proxy.get("/api/activity/1")
        assert await proxy.state("a") == "stopped"
    assert fake.count("a", "start") == 1
