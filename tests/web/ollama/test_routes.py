"""Ollama's paths over a scripted server; `tests/e2e/test_ollama.py` has real ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import SelectorConfig
from llmsnap.core.lifecycle import State
from llmsnap.web.ollama.listing import FOR_EVER
from llmsnap.web.server import PARTS
from tests.helpers.waiting import eventually
from tests.web.fleet import FakeFleet, config_of, front_of
from tests.web.scripted import STREAM_HEAD, Line, Received, Script, whole
from tests.web.serving import Reply, serving
from tests.web.stage import Stage, staged

CONFIG = Config(
    ollama_api=True,
    models={"a": ModelConfig(cmd="serve a", aliases=("x:latest",), ttl_s=60)},
    selectors={"s": SelectorConfig(strategy="warm", targets=("a",))},
)
HI = [{"role": "user", "content": "hi"}]
CHUNK = b'data: {"choices":[{"delta":{"content":"yo"},"finish_reason":"stop"}]}\n\n'


async def say_whole(_: Received, line: Line) -> None:
    """A chat in one answer."""
    await line.say(whole(b'{"choices":[{"message":{"content":"yo"},"finish_reason":"stop"}]}'))


async def say_stream(_: Received, line: Line) -> None:
    """A chat in two events."""
    await line.say(STREAM_HEAD)
    await line.chunk(CHUNK)
    await line.chunk(b"data: [DONE]\n\n")
    await line.chunk(b"")


@asynccontextmanager
async def ollama(script: Script, config: Config = CONFIG) -> AsyncIterator[Stage]:
    """A proxy that speaks it."""
    async with staged(script, config=config) as stage:
        yield stage


async def posted(stage: Stage, path: str, **body: Any) -> Reply:
    """What comes of a POST."""
    return await stage.site.ask(path, method="POST", data=json.dumps(body).encode())


async def test_it_is_off_by_default() -> None:
    """And comes and goes with the configuration."""
    app = front_of(config_of("a"))
    async with serving(app) as site:
        off = await site.ask("/api/tags")
        for part in app[PARTS]:
            part.adopt(CONFIG)
        on = await site.ask("/api/tags")
        version = await site.ask("/api/version")

    assert (off.status, on.status) == (404, 200)
    assert "ollamaApi" in off.message
    assert version.json["version"].startswith("0.12.6+llmsnap.")
    assert version.json.keys() == {"version", "commit", "build_date"}


@pytest.mark.parametrize("name", ["a", "a:latest", "x", "x:latest", "s"])
async def test_names_may_lack_their_tag(name: str) -> None:
    """Answers have the name that is known here."""
    async with ollama(say_whole) as stage:
        reply = await posted(stage, "/api/chat", model=name, messages=HI, stream=False)

        assert reply.status == 200
        assert reply.json["message"]["content"] == "yo"
        assert stage.received.target == "/v1/chat/completions"
        assert reply.headers["X-Llmsnap-Model"] == "a"
        assert (await stage.recorded())[0].path == "/v1/chat/completions"


async def test_a_stream_is_lines() -> None:
    """The first one at once."""
    async with ollama(say_stream) as stage:
        reply = await posted(stage, "/api/generate", model="a", prompt="hi")

    text, last = [json.loads(line) for line in reply.text.splitlines()]
    assert reply.headers["Content-Type"] == "application/x-ndjson"
    assert (text["response"], text["done"], last["done"]) == ("yo", False, True)


async def test_a_servers_refusal_is_ollamas() -> None:
    """With its status, stream or not."""

    async def refuse(_: Received, line: Line) -> None:
        await line.say(whole(b'{"error":{"message":"no images"}}', status="400 Bad Request"))

    async with ollama(refuse) as stage:
        for stream in (True, False):
            reply = await posted(stage, "/api/chat", model="a", messages=HI, stream=stream)
            assert (reply.status, reply.json) == (400, {"error": "no images"})


async def test_a_server_that_goes_away_is_an_error() -> None:
    """A line of it in a stream that has begun, else the answer."""

    async def leave(received: Received, line: Line) -> None:
        if b'"stream":true' in received.body:
            await line.say(STREAM_HEAD)
            await line.chunk(b'data: {"choices":[{"delta":{"content":"y"}}]}\n\n')
        line.drop()

    async with ollama(leave) as stage:
        whole_one = await posted(stage, "/api/chat", model="a", messages=HI, stream=False)
        stream = await posted(stage, "/api/chat", model="a", messages=HI)

    assert whole_one.status == 502
    assert isinstance(whole_one.json["error"], str)
    assert "error" in json.loads(stream.text.splitlines()[-1])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/chat", {"model": "nope", "messages": HI}, 404),
        ("/api/chat", {"messages": HI}, 400),
        ("/api/chat", {"model": "a", "messages": "hi"}, 400),
        ("/api/chat", {"model": "a", "messages": HI, "keep_alive": "soon"}, 400),
        ("/api/generate", {"model": "a", "prompt": "x", "suffix": "y"}, 400),
        ("/api/show", {"model": "s"}, 404),
        ("/api/embed", {"model": "a"}, 400),
    ],
)
async def test_bad_requests_hear_what_is_wrong(
    path: str, body: dict[str, Any], status: int
) -> None:
    """In Ollama's form."""
    async with ollama(say_whole) as stage:
        reply = await posted(stage, path, **body)

    assert reply.status == status
    assert isinstance(reply.json["error"], str)


async def test_a_body_that_is_no_object_is_refused() -> None:
    """Whatever it is."""
    async with ollama(say_whole) as stage:
        for data in (b"", b"x", b"[]"):
            reply = await stage.site.ask("/api/chat", method="POST", data=data)
            assert reply.status == 400


async def test_an_empty_request_loads_or_puts_away() -> None:
    """Without asking the model anything."""
    fleet = FakeFleet("a")
    async with serving(front_of(CONFIG, fleet)) as site:
        load = await site.ask("/api/generate", method="POST", data=b'{"model":"a"}')
        away = await site.ask(
            "/api/chat", method="POST", data=b'{"model":"a","messages":[],"keep_alive":0}'
        )
        await eventually(lambda: fleet.view("a").state is State.ASLEEP)

    assert (load.json["done_reason"], load.json["done"]) == ("load", True)
    assert away.json["done_reason"] == "unload"


async def test_keep_alive_counts_from_the_end_of_the_answer() -> None:
    """And is seen in `/api/ps`, where else the `ttl` is."""

    async def chat(keep_alive: str | int) -> None:
        before = len(stage.fleet.orders)
        await posted(
            stage, "/api/chat", model="a", messages=HI, stream=False, keep_alive=keep_alive
        )
        await eventually(lambda: len(stage.fleet.orders) > before)

    async with ollama(say_whole) as stage:
        await chat("1h")
        assert stage.fleet.orders == [("keep", "a", 3600.0)]
        kept = (await stage.site.ask("/api/ps")).json["models"][0]
        assert kept["expires_at"] < FOR_EVER
        await chat(-1)
        kept = (await stage.site.ask("/api/ps")).json["models"][0]
        assert kept["expires_at"] == FOR_EVER
        await chat(0)
        assert (await stage.site.ask("/api/ps")).json["models"] == []


@pytest.mark.parametrize("messages", [HI, []])
async def test_pages_of_other_sites_dont_say_how_long(messages: list[dict[str, str]]) -> None:
    """They may ask a model, but neither put it away nor keep others out of its memory."""
    async with ollama(say_whole) as stage:
        for keep_alive, status in ((0, 403), ("0s", 403), (60, 200), (-1, 200)):
            body = {"model": "a", "messages": messages, "stream": False, "keep_alive": keep_alive}
            reply = await stage.site.ask(
                "/api/chat",
                method="POST",
                data=json.dumps(body).encode(),
                headers={"Sec-Fetch-Site": "cross-site"},
            )
            assert reply.status == status, reply
        assert not [order for order in stage.fleet.orders if order[0] == "keep"]
