"""Helpers and the default model, through the real command line."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from pathlib import Path

import pytest

from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e


async def test_u17_the_default_model_comes_back(tmp_path: Path) -> None:
    """It is up at the start, makes room for another, and is back when that one has expired."""
    fake = FakeModels(tmp_path, head="memory: {mode: off}\ndefault: small\n")
    fake.add("small").add("big", more="ttl: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.becomes("small", "ready")
        await proxy.chat("big")
        moves: list[tuple[str, str]] = []

        async def is_back() -> bool:
            _, page = await proxy.get("/api/swaps?order=asc")
            moves[:] = [(move["model"], move["kind"]) for move in page["data"]]
            return moves.count(("small", "start")) == 2

        await eventually(is_back)
        assert moves == [
            ("small", "start"),
            ("small", "stop"),
            ("big", "start"),
            ("big", "stop"),
            ("small", "start"),
        ]


async def test_a_background_call_leaves_the_chat_alone(tmp_path: Path) -> None:
    """It waits until the chat wasn't used for its `minAwake`; then it is served."""
    fake = FakeModels(tmp_path, head="memory: {mode: off}\nschedule: {fairAfter: 0}\n")
    fake.add("chat", more="minAwake: 3s").add("title", more="class: helper")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("chat")
        call = asyncio.ensure_future(proxy.chat("title"))
        for _ in range(4):
            await asyncio.sleep(0.4)
            await proxy.chat("chat")
        await call
    before = takewhile(lambda entry: entry["event"] != "term", fake.journal("chat"))
    used_at = max(entry["at"] for entry in before if entry["event"] == "request")
    assert fake.when("chat", "term") - used_at >= 3
