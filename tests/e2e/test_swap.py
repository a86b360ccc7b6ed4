"""The main job: real llama-servers behind the real command line, swapped as requests name them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Configure
from tests.helpers.llama import server_environment
from tests.helpers.processes import lives
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e


def said(answer: dict[str, Any]) -> str:
    """The text of a chat completion."""
    return str(answer["choices"][0]["message"]["content"])


def servers(proxy: ProxyProcess) -> set[int]:
    """The pids of the llama-servers that live now."""
    return {child.pid for child in proxy.children() if lives(child.pid)}


@asynccontextmanager
async def counting(proxy: ProxyProcess) -> AsyncIterator[set[int]]:
    """Collect how many llama-servers are seen at once while the block runs."""
    counts: set[int] = set()

    async def look() -> None:
        while True:
            counts.add(len(servers(proxy)))
            await asyncio.sleep(0.01)

    watcher = asyncio.ensure_future(look())
    try:
        yield counts
    finally:
        watcher.cancel()


async def stream(proxy: ProxyProcess, model: str, tokens: int) -> AsyncIterator[str]:
    """Yield the text of a streamed chat completion, piece by piece, up to `[DONE]`."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0,
        "max_tokens": tokens,
        "stream": True,
    }
    async with proxy.session.post("/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
        async for line in answer.content:
            if line == b"data: [DONE]\n":
                return
            if line.startswith(b"data: "):
                for choice in json.loads(line[6:])["choices"]:
                    yield choice["delta"].get("content") or ""
    raise AssertionError("the stream ended without [DONE]")


async def test_a_then_b_then_a_answer_like_servers_of_their_own(
    configure: Configure, direct_texts: dict[str, str], tmp_path: Path
) -> None:
    """Three swaps on memory for one: the right text each time, and one process at a time."""
    async with running_proxy(configure(), tmp_path, env=server_environment()) as proxy:
        async with counting(proxy) as counts:
            texts = [said(await proxy.chat(name)) for name in "aba"]
        running = await proxy.models()

    assert texts == [direct_texts["a"], direct_texts["b"], direct_texts["a"]]
    assert direct_texts["a"] != direct_texts["b"]
    assert max(counts) == 1
    assert {name: model["state"] for name, model in running.items()} == {
        "a": "ready",
        "b": "stopped",
    }


async def test_two_models_that_fit_stay_awake_together(
    configure: Configure, tmp_path: Path
) -> None:
    """With memory for both nothing is swapped: each keeps its process."""
    text = configure("memory: {devices: {host: 1GiB}}")
    async with running_proxy(text, tmp_path, env=server_environment()) as proxy:
        for name in "ab":
            await proxy.chat(name)
        pids = servers(proxy)
        for name in "abab":
            await proxy.chat(name)

        assert len(pids) == 2
        assert servers(proxy) == pids


@pytest.mark.slow
async def test_200_interleaved_requests_to_three_models_are_all_served(
    configure: Configure, direct_texts: dict[str, str], tmp_path: Path
) -> None:
    """A crowd of clients on memory for one model: all 200, none cut, never two awake."""
    text = configure(names="abc")
    async with (
        running_proxy(text, tmp_path, env=server_environment()) as proxy,
        counting(proxy) as counts,
    ):
        answers = await asyncio.gather(*(proxy.chat("abc"[n % 3]) for n in range(200)))

    assert {said(answer) for answer in answers[0::3]} == {direct_texts["a"]}
    assert {said(answer) for answer in answers[1::3]} == {direct_texts["b"]}
    assert {said(answer) for answer in answers[2::3]} == {direct_texts["c"]}
    assert max(counts) == 1


async def test_a_stream_is_finished_before_the_other_model_is_started(
    configure: Configure, tmp_path: Path
) -> None:
    """Nothing in flight is cut for a swap: a's last token is out before b has a process."""
    async with running_proxy(configure(), tmp_path, env=server_environment()) as proxy:
        pieces = stream(proxy, "a", 200)
        text = await anext(pieces)
        first = servers(proxy)
        async with counting(proxy) as counts:
            asked = asyncio.ensure_future(proxy.chat("b"))
            await eventually(lambda: is_queued(proxy, "b"))
            assert servers(proxy) == first
            async for piece in pieces:
                text += piece
            await asked

        assert len(text) >= 200
        assert max(counts) == 1
        assert servers(proxy).isdisjoint(first)


async def is_queued(proxy: ProxyProcess, model: str) -> bool:
    """Whether one request waits for `model`."""
    return int((await proxy.models())[model]["waiting"]) == 1


async def test_ten_first_requests_start_one_process(configure: Configure, tmp_path: Path) -> None:
    """However many ask for a cold model, it is started once."""
    async with running_proxy(configure(), tmp_path, env=server_environment()) as proxy:
        await asyncio.gather(*(proxy.chat("a") for _ in range(10)))
        generations = (await proxy.models())["a"]["generation"]

        assert generations == 1
        assert len(servers(proxy)) == 1


async def test_a_model_is_never_started_for_a_client_who_left_the_queue(
    configure: Configure, tmp_path: Path
) -> None:
    """A client that leaves while it waits frees its place, and its model isn't loaded for it."""
    async with running_proxy(configure(), tmp_path, env=server_environment()) as proxy:
        pieces = stream(proxy, "a", 300)
        await anext(pieces)
        asked = asyncio.ensure_future(proxy.chat("b"))

        async def gone() -> bool:
            return not await is_queued(proxy, "b")

        await eventually(lambda: is_queued(proxy, "b"))
        asked.cancel()
        await eventually(gone)
        _ = [piece async for piece in pieces]
        await proxy.chat("a")

        assert (await proxy.models())["b"]["generation"] == 0


async def test_answers_carry_their_timings_and_model(configure: Configure, tmp_path: Path) -> None:
    """A cold answer says how long it queued and started, a warm one only its prefill."""
    body = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    async with running_proxy(configure(), tmp_path, env=server_environment()) as proxy:
        seen = [await header_of(proxy.session, body) for _ in range(2)]

    assert phases(seen[0]) >= {"start", "prefill"}
    assert phases(seen[1]) == {"prefill"}


async def header_of(session: aiohttp.ClientSession, body: dict[str, Any]) -> str:
    """The `Server-Timing` of one chat answer."""
    async with session.post("/v1/chat/completions", json=body) as answer:
        assert answer.headers["X-Llmsnap-Model"] == "a"
        return answer.headers["Server-Timing"]


def phases(header: str) -> set[str]:
    """The names in a `Server-Timing` header; each has a duration in milliseconds."""
    parts: Iterable[str] = header.split(",")
    names = set()
    for part in parts:
        name, _, duration = part.strip().partition(";dur=")
        assert float(duration) > 0
        names.add(name)
    return names
