"""All memory for something else, through the real command line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e


async def command(proxy: ProxyProcess, *argv: str) -> str:
    """Run llmsnap against `proxy`; return what it prints."""
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "llmsnap", *argv],
        env={**os.environ, "LLMSNAP_URL": proxy.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


async def test_u25a_everything_leaves_and_comes_back(tmp_path: Path) -> None:
    """As before a suspend: nothing runs until it is resumed, and who asked meanwhile is served."""
    fake = FakeModels(tmp_path, head="groups: {g: {swap: false, members: [a, b]}}")
    fake.add("a").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await asyncio.gather(proxy.chat("a"), proxy.chat("b"))
        said = await command(proxy, "release")
        assert "all memory is free" in said
        assert proxy.children() == []
        _, status = await proxy.get("/api/status")
        assert status["released"] == {"left_s": None, "refuse": False}
        waiting = asyncio.ensure_future(proxy.chat("a"))

        async def waits() -> bool:
            return bool((await proxy.models())["a"]["waiting"])

        await eventually(waits)
        assert proxy.children() == []
        assert "models may load again" in await command(proxy, "resume")
        await waiting
        _, status = await proxy.get("/api/status")
        assert status["released"] is None


async def test_requests_are_refused_for_as_long_as_was_said(tmp_path: Path) -> None:
    """With a 503 that says when to ask again; then they are served by themselves."""
    fake = FakeModels(tmp_path).add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        status, answer = await proxy.post("/api/release", {"for": "4s", "refuse": True})
        assert (status, answer["models"]) == (200, {"a": "stopped"})
        body = {"model": "a", "messages": []}
        async with proxy.session.post("/v1/chat/completions", json=body) as refused:
            assert refused.status == 503
            assert int(refused.headers["Retry-After"]) in (1, 2, 3, 4)
            assert "llmsnap resume" in await refused.text()

        async def served() -> bool:
            return (await proxy.post("/v1/chat/completions", body))[0] == 200

        await eventually(served)


async def test_running_answers_end_before_it_is_done(tmp_path: Path) -> None:
    """Or they are cut, when their time is up."""
    fake = FakeModels(tmp_path).add("a", "--first-byte 1").add("b", "--hang")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        answer = asyncio.ensure_future(proxy.chat("a"))
        await eventually(lambda: fake.count("a", "request") == 1)
        status, _ = await proxy.post("/api/release")
        assert status == 200
        await answer
        await proxy.post("/api/resume")
        hung = asyncio.ensure_future(proxy.post("/v1/completions", {"model": "b"}))
        await eventually(lambda: fake.count("b", "request") == 1)
        status, _ = await proxy.post("/api/release", {"timeout": 0.2})
        assert status == 200
        assert (await hung)[0] == 503


async def test_a_resume_meanwhile_is_told(tmp_path: Path) -> None:
    """Who waited for the memory hasn't got it."""
    fake = FakeModels(tmp_path).add("a", "--hang")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        hung = asyncio.ensure_future(proxy.post("/v1/completions", {"model": "a"}))
        await eventually(lambda: fake.count("a", "request") == 1)
        released = asyncio.ensure_future(proxy.post("/api/release"))

        async def is_released() -> bool:
            return (await proxy.get("/api/status"))[1]["released"] is not None

        await eventually(is_released)
        await proxy.post("/api/resume")
        status, answer = await released
        assert status == 409
        assert "resumed before a had left" in answer["error"]["message"]
        hung.cancel()


@pytest.mark.parametrize("body", [{"for": "soon"}, {"timeout": -1}, {"forr": 1}, {"refuse": 2}])
async def test_an_order_that_isnt_understood_is_refused(
    tmp_path: Path, body: dict[str, object]
) -> None:
    """And nothing is released."""
    async with running_proxy("models: {}", tmp_path) as proxy:
        status, answer = await proxy.post("/api/release", body)
        assert status == 400
        assert "the body must be like" in answer["error"]["message"]
        assert (await proxy.get("/api/status"))[1]["released"] is None
