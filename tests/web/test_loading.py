"""`sendLoadingState`: what a chat is told while its model is on its way."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import aiohttp
import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.core.lifecycle import State
from llmsnap.errors import ConcurrencyLimited, StartFailed
from llmsnap.web import loading
from llmsnap.web.loading import LoadingText
from tests.helpers.views import view_of
from tests.helpers.waiting import eventually
from tests.web.scripted import Line, Received
from tests.web.stage import Stage, read_until, staged

STREAM = b'{"model":"al","stream":true}'
SAID = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody wants to wait in a test."""
    monkeypatch.setattr(loading, "FIRST_S", 0.01)
    monkeypatch.setattr(loading, "EVERY_S", 0.02)


async def say_hi(_: Received, line: Line) -> None:
    """Answer with a short stream."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    await line.say(head % len(SAID) + SAID)


def config(**more: Any) -> Config:
    """A model that tells of its way up."""
    return Config(models={"a": ModelConfig(cmd="x", aliases=("al",), **more)})


def chunks(text: str) -> list[dict[str, Any]]:
    """The events of a stream."""
    lines = [line for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def reasoning(text: str) -> str:
    """The reasoning text of a stream."""
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(text)]
    return "".join(delta.get("reasoning_content", "") for delta in deltas)


async def first_words(answer: aiohttp.ClientResponse) -> str:
    """What is told of the way up, as far as its first dot."""
    text = ""
    while " ." not in reasoning(text):
        text += (await read_until(answer, b"\n\n")).decode()
    return text


async def ask_while_down(stage: Stage, body: bytes = STREAM, path: str = "") -> str:
    """Ask, and put the model up a moment later; return the whole answer."""
    asking = asyncio.ensure_future(stage.text(body, path) if path else stage.text(body))
    await eventually(lambda: bool(stage.lender.waiting))
    await asyncio.sleep(0.1)
    stage.put_up()
    return await asking


async def test_p41_the_way_up_is_told_and_then_comes_the_answer() -> None:
    """In reasoning text, before the upstream's own bytes."""
    async with staged(say_hi, up=False, config=config(send_loading_state=True)) as stage:
        async with stage.ask(STREAM) as answer:
            text = await first_words(answer)
            stage.put_up()
            text += (await answer.read()).decode()

    told = reasoning(text)
    assert told.startswith("━━━━━\nllmsnap loading model: al\nwaiting until it is asleep .")
    assert re.search(r"\nDone! \(\d+\.\d", told)
    assert told.endswith("s)\n━━━━━\n \n")
    assert text.endswith(SAID.decode())
    first = chunks(text)[0]
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["finish_reason"] is None


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"model":"al"}', "/v1/chat/completions"),
        (STREAM, "/v1/completions"),
        (STREAM, "/v/chat/completions"),
        (STREAM, "/v1/messages"),
    ],
)
async def test_p42_other_requests_are_told_nothing(body: bytes, path: str) -> None:
    """They have no place for it."""
    async with staged(say_hi, up=False, config=config(send_loading_state=True), ping_s=60) as stage:
        assert await ask_while_down(stage, body, path) == SAID.decode()


async def test_nothing_is_told_of_a_model_that_is_up_or_says_nothing() -> None:
    """Then the answer is the upstream's."""
    async with staged(say_hi, config=config(send_loading_state=True)) as stage:
        assert await stage.text(STREAM) == SAID.decode()
    async with staged(say_hi, up=False, config=config(), ping_s=60) as stage:
        assert await ask_while_down(stage) == SAID.decode()


async def test_what_is_refused_at_once_has_its_status() -> None:
    """Before anything was said."""
    async with staged(say_hi, up=False, config=config(send_loading_state=True)) as stage:
        stage.lender.refusal = ConcurrencyLimited("too many")
        async with stage.ask(STREAM) as answer:
            assert answer.status == 429


async def test_a_load_that_fails_ends_as_an_event() -> None:
    """In the form in which OpenAI's clients look for it."""
    async with staged(say_hi, up=False, config=config(send_loading_state=True)) as stage:
        async with stage.ask(STREAM) as answer:
            text = await first_words(answer)
            stage.lender.abort("a", StartFailed("a has a bad flag"))
            text += (await answer.read()).decode()

    *told, last = chunks(text)
    assert told[0]["choices"][0]["delta"]["reasoning_content"].startswith("━━━━━")
    assert last["error"]["message"] == "a has a bad flag"


async def test_each_state_has_its_words() -> None:
    """A state is named once, and then there are dots."""
    views = {"now": State.STOPPED}
    said: list[bytes] = []
    loop = asyncio.get_running_loop()
    text = LoadingText(loop, "a", lambda: view_of("a", state=views["now"]), said.append)
    for state in (State.STOPPED, State.STARTING, State.READY):
        views["now"] = state
        count = len(said)
        await eventually(lambda count=count: len(said) > count + 2)
    text.done()

    told = reasoning(b"".join(said).decode())
    assert "waiting for room ." in told
    assert "\nstarting ." in told
    assert "\nwaiting for its turn ." in told
    assert set(loading._DOING) == set(State)
