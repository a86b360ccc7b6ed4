"""Saved conversations whose model has no slot free, with real llama-servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.conftest import Configure
from tests.e2e.test_sessions import LONG, Talk, say
from tests.helpers.llama import server_argv
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

STREAM_TOKENS = 600
"""Some seconds of an answer."""
AT_LENGTH: dict[str, Any] = {"max_tokens": STREAM_TOKENS, "ignore_eos": True}


async def stream(
    proxy: ProxyProcess, text: str, began: asyncio.Event, *, tokens: int = STREAM_TOKENS
) -> float:
    """Have model `a` write so many tokens; sets `began` with the first; returns when it ended."""
    body = {
        "model": "a",
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "temperature": 0,
        "max_tokens": tokens,
        "ignore_eos": True,
    }
    async with proxy.session.post("/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
        async for _ in answer.content:
            began.set()
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def streaming(
    proxy: ProxyProcess, text: str, **more: Any
) -> AsyncIterator[asyncio.Future[float]]:
    """Have a long answer under way; it's cancelled where the block ends before it."""
    began = asyncio.Event()
    answer = asyncio.ensure_future(stream(proxy, text, began, **more))
    await asyncio.wait_for(began.wait(), 60)
    try:
        yield answer
    finally:
        answer.cancel()
        await asyncio.wait({answer})


async def saved_talk(proxy: ProxyProcess) -> tuple[Talk, int]:
    """Have a conversation, saved, of a process that has ended; with how many tokens it has."""
    talk: Talk = []
    first = await say(proxy, talk, LONG)
    await proxy.post("/api/models/unload")
    await proxy.becomes("a", "stopped")
    return talk, first["prompt_n"] + first["predicted_n"] - 1


async def in_flight(proxy: ProxyProcess, count: int) -> None:
    """Wait until so many requests are with the model, or wait for a slot of it."""

    async def reached() -> bool:
        return bool((await proxy.models())["a"]["in_flight"] == count)

    await eventually(reached, what=f"{count} in flight")


async def unload(proxy: ProxyProcess) -> None:
    """End the process, answers and all."""
    await proxy.post("/api/models/unload/a?timeout=0")


async def kill(proxy: ProxyProcess) -> None:
    """The same, from outside."""
    psutil.Process((await proxy.models())["a"]["pid"]).kill()


async def test_a_saved_conversation_waits_for_the_only_slot(
    configure: Configure, tmp_path: Path
) -> None:
    """Its request is held until the long answer before it is over, and nothing is read again."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk, held = await saved_talk(proxy)
        async with streaming(proxy, "at length") as answer:
            found = await say(proxy, talk, "go on")
            await eventually(answer.done, what="the long answer has ended")
        assert found["cache_n"] >= 0.95 * held


async def test_what_has_to_go_for_it_is_saved_and_comes_back(
    configure: Configure, tmp_path: Path
) -> None:
    """Two conversations on one slot, each asked while the other one is answered."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk, held = await saved_talk(proxy)
        other: Talk = [{"role": "user", "content": "another " * 100}]
        asked = asyncio.ensure_future(proxy.chat("a", messages=other, **AT_LENGTH))
        await in_flight(proxy, 1)
        found = await say(proxy, talk, "go on")
        assert found["cache_n"] >= 0.95 * held
        first = await asked
        other.append(first["choices"][0]["message"])
        held = first["timings"]["prompt_n"] + first["timings"]["predicted_n"] - 1
        again = await say(proxy, other, "go on")
        assert again["cache_n"] >= 0.95 * held


async def test_with_two_slots_it_waits_for_the_first_that_is_free(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """The other one's answer goes on; a request that came later doesn't overtake."""
    command = " ".join(server_argv(models["a"], np=2))
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
    async with running_proxy(config, tmp_path) as proxy:
        talk, held = await saved_talk(proxy)
        async with (
            streaming(proxy, "at great length", tokens=3000) as longest,
            streaming(proxy, "at length", tokens=300) as shorter,
        ):
            waiting = asyncio.ensure_future(say(proxy, talk, "go on"))
            await in_flight(proxy, 3)
            later = asyncio.ensure_future(proxy.chat("a", "later"))
            found = await waiting
            assert not longest.done()
            await eventually(shorter.done, what="the shorter one has ended")
            await later
        assert found["cache_n"] >= 0.95 * held
        await proxy.logs("are back in slot", times=1)


async def test_who_waits_for_a_slot_goes_with_the_process(
    configure: Configure, tmp_path: Path
) -> None:
    """Unloaded at once, or ended from outside, it holds up nobody; the conversation is kept."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk, held = await saved_talk(proxy)
        for end in (unload, kill):
            async with streaming(proxy, "at length", tokens=3000):
                body = {"model": "a", "messages": [*talk, {"role": "user", "content": "go on"}]}
                waiting = asyncio.ensure_future(proxy.post("/v1/chat/completions", body))
                await in_flight(proxy, 2)
                await end(proxy)
                status, _ = await asyncio.wait_for(waiting, 60)
                assert status in (502, 503)
        found = await say(proxy, talk, "go on")
        assert found["cache_n"] >= 0.95 * held


async def test_a_reload_lets_who_waits_for_a_slot_have_it(
    configure: Configure, tmp_path: Path
) -> None:
    """Its process owes it an answer, and goes after that."""
    config = configure(names="a")
    async with running_proxy(config, tmp_path) as proxy:
        talk, held = await saved_talk(proxy)
        async with streaming(proxy, "at length"):
            waiting = asyncio.ensure_future(say(proxy, talk, "go on"))
            await in_flight(proxy, 2)
            (tmp_path / "config.yaml").write_text(config.replace("--threads 1", "--threads 2"))
            assert (await proxy.post("/api/config/reload"))[0] == 200
            found = await waiting
        assert found["cache_n"] >= 0.95 * held
        again = await say(proxy, talk, "and on")
        assert again["cache_n"] >= 0.95 * held


async def test_a_client_that_leaves_the_line_holds_up_nobody(
    configure: Configure, tmp_path: Path
) -> None:
    """The next one in it gets the slot."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk, held = await saved_talk(proxy)
        async with streaming(proxy, "at length"):
            leaving = asyncio.ensure_future(say(proxy, [*talk], "and another"))
            await in_flight(proxy, 2)
            waiting = asyncio.ensure_future(say(proxy, talk, "go on"))
            await in_flight(proxy, 3)
            leaving.cancel()
            await in_flight(proxy, 2)
            found = await waiting
        assert found["cache_n"] >= 0.95 * held


async def test_u134_who_gives_up_on_a_long_prompt_and_asks_again_finds_it_read(
    configure: Configure, tmp_path: Path
) -> None:
    """Though something shorter that begins alike is saved, and would be restored else."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk: Talk = [{"role": "system", "content": "be brief " * 50}]
        await say(proxy, talk, "hello")
        await proxy.post("/api/models/unload")
        await proxy.becomes("a", "stopped")
        long = [talk[0], {"role": "user", "content": LONG}]
        body = {"model": "a", "messages": long, "stream": True, **AT_LENGTH}
        async with proxy.session.post("/v1/chat/completions", json=body) as answer:
            await answer.content.readuntil(b"\n\n")
        found = await say(proxy, [talk[0]], LONG)
        assert found["prompt_n"] <= 2
        assert found["cache_n"] >= len(LONG)


async def test_e08_it_waits_for_room_in_a_common_cache(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Its server would end both with an error; what does fit beside the long one overtakes."""
    command = " ".join(server_argv(models["a"])).replace("-np 1 ", "")
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
    async with running_proxy(config, tmp_path) as proxy:
        talk, held = await saved_talk(proxy)
        async with streaming(proxy, "at length " * 270, tokens=300) as longest:
            waiting = asyncio.ensure_future(say(proxy, talk, "go on"))
            await in_flight(proxy, 2)
            await proxy.chat("a", "short")
            assert not longest.done()
            found = await waiting
            await eventually(longest.done, what="the longest has ended")
        assert found["cache_n"] >= 0.95 * held
