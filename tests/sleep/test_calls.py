"""Calls to a server: where they go, with which key, and how they are told about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from llmsnap.errors import SleepFailed, WakeFailed
from llmsnap.sleep.calls import Answer, Ask, server_key
from llmsnap.sleep.driver import Target
from tests.sleep.sleepy import driving, sleepy
from tests.web.serving import serving


def target(argv: tuple[str, ...] = (), **env: str) -> Target:
    """A server with this command and environment."""
    return Target(
        model="m",
        generation=1,
        pid=1,
        argv=argv,
        env=env,
        host="nowhere.invalid",
        port=1,
        base_url="http://nowhere.invalid:1",
    )


@pytest.mark.parametrize(
    ("found", "key"),
    [
        (target(("srv", "--port", "1")), ""),
        (target(("srv", "--api-key", "k")), "k"),
        (target(("srv", "--api-key=k")), "k"),
        (target(("srv", "--api-key", "k,l")), "k"),
        (target(("srv", "--api-key")), ""),
        (target(("srv",), VLLM_API_KEY="v"), "v"),
        (target(("srv",), LLAMA_API_KEY="l"), "l"),
        (target(("srv", "--api-key", "k"), VLLM_API_KEY="v"), "k"),
        (target(("srv",), OPENAI_API_KEY="o"), ""),
    ],
)
def test_the_key_that_a_server_asks_for(found: Target, key: str) -> None:
    """Out of its command or its environment."""
    assert server_key(found) == key


async def test_the_key_goes_to_no_other_server(tmp_path: Path) -> None:
    """A step may name one by a whole URL."""
    options = ["--api-key", "sk-of-the-first"]
    async with sleepy(tmp_path, options) as first, sleepy(tmp_path, options) as second:
        keys = f"""
    sleepEndpoints: [{{endpoint: /sleep}}, {{endpoint: "{second.target.base_url}/sleep"}}]
    wakeEndpoints: [{{endpoint: /wake_up}}]
"""
        async with driving(keys) as driver:
            with pytest.raises(SleepFailed) as caught:
                await driver.sleep(first.target)

        assert "sleepEndpoints[1] (POST /sleep) answered 401" in str(caught.value)
        assert "not the key: None" in str(caught.value)


async def test_an_answer_without_end_is_cut() -> None:
    """Nobody reads that much of it, and nobody waits for the rest."""

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=500)
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    app = web.Application()
    app.router.add_post("/sleep", flood)
    async with serving(app) as site:
        server = replace(target(), base_url=site.url)
        async with driving("""
    sleepEndpoints: [{endpoint: /sleep, timeout: 30}]
    wakeEndpoints: [{endpoint: /wake_up}]
""") as driver:
            with pytest.raises(SleepFailed, match="answered 500: 'xxx"):
                await driver.sleep(server)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://h:1/sleep?level=1", "k (POST /sleep?level=1)"),
        ("http://user:pass@h", "k (POST /)"),
    ],
)
def test_a_call_in_words(url: str, text: str) -> None:
    """The host isn't news."""
    assert str(Ask("k", url, "POST", 1.0)) == text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(500, " no\nmemory \n"), r"500: 'no\nmemory'"),
        (Answer(204, ""), "204 and no text"),
        (Answer(500, "x" * 1000), f"500: '{'x' * 200}'"),
    ],
)
def test_an_answer_in_words(answer: Answer, text: str) -> None:
    """On one line, and no more than 200 characters of it."""
    assert str(answer) == text


@pytest.mark.parametrize("key", ["fine", "not\nfine"])
async def test_a_call_that_cant_be_made_is_a_failure(key: str) -> None:
    """Not a crash: a host that there isn't, a key that no header can carry."""
    keys = """
    sleepEndpoints: [{endpoint: "http://nowhere.invalid/s"}]
    wakeEndpoints: [{endpoint: /w}]
"""
    argv = ("srv", "--api-key", key)
    async with driving(keys) as driver:
        with pytest.raises(SleepFailed, match=r"sleepEndpoints\[0\] \(POST /s\) got no answer: "):
            await driver.sleep(target(argv))
        with pytest.raises(WakeFailed, match=r"wakeEndpoints\[0\] \(POST /w\) got no answer: "):
            await driver.wake(target(argv))
