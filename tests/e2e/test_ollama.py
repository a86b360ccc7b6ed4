"""The official Ollama client works against the proxy, over real llama-servers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import ollama
import pytest
import pytest_asyncio

from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

HI = [{"role": "user", "content": "hi"}]
SHORT = {"num_predict": 8, "temperature": 0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProxyProcess]:
    """A model that talks and one that embeds."""
    folder = tmp_path_factory.mktemp("ollama")
    talks = server_argv(tiny_gguf())
    embeds = server_argv(tiny_gguf(1), extra=["--embeddings", "--pooling", "mean"])
    models = {
        "a": {"cmd": " ".join(talks), "ram": "200MiB"},
        "e": {"cmd": " ".join(embeds), "ram": "200MiB"},
    }
    config = {"ollamaApi": True, "startPort": free_ports(2), "sleep": {"mode": "off"}}
    text = json.dumps({**config, "models": models})
    async with running_proxy(text, folder, env=server_environment()) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(proxy: ProxyProcess) -> AsyncIterator[ollama.AsyncClient]:
    """Ollama's client."""
    async with ollama.AsyncClient(host=proxy.url) as client:
        yield client


async def test_it_chats_whole_and_in_a_stream(
    client: ollama.AsyncClient, proxy: ProxyProcess
) -> None:
    """The text is the model's own, as OpenAI's clients get it."""
    own = (await proxy.chat("a", max_tokens=8))["choices"][0]["message"]["content"]
    whole = await client.chat("a", messages=HI, options=SHORT)
    parts = [one async for one in await client.chat("a", messages=HI, options=SHORT, stream=True)]

    assert whole.message.content == own
    assert "".join(one.message.content or "" for one in parts) == own
    assert [one.done for one in parts] == [False] * (len(parts) - 1) + [True]
    assert (parts[-1].eval_count, parts[-1].done_reason) == (8, "length")
    assert whole.prompt_eval_count == parts[-1].prompt_eval_count
    assert whole.eval_duration


async def test_it_generates_whole_and_in_a_stream(client: ollama.AsyncClient) -> None:
    """With the template, and without."""
    chat = await client.chat("a", messages=HI, options=SHORT)
    templated = await client.generate("a", prompt="hi", options=SHORT)
    raw = await client.generate("a", prompt="hi", raw=True, options=SHORT)
    stream = await client.generate("a", prompt="hi", raw=True, options=SHORT, stream=True)

    assert templated.response == chat.message.content
    assert "".join([one.response or "" async for one in stream]) == raw.response


async def test_it_embeds(client: ollama.AsyncClient) -> None:
    """One text or several, by the newer endpoint and the older."""
    several = await client.embed("e", input=["one", "another"])
    older = await client.embeddings("e", prompt="one")

    assert len(several.embeddings) == 2
    assert len(older.embedding) == len(several.embeddings[0])
    assert several.prompt_eval_count


async def test_it_lists_shows_and_sees_what_runs(
    client: ollama.AsyncClient, proxy: ProxyProcess
) -> None:
    """And a model that is told to go is gone."""
    assert (await proxy.post("/api/models/unload"))[0] == 200
    assert [model.model for model in (await client.list()).models] == ["a", "e"]
    assert (await client.show("a:latest")).capabilities == ["completion", "tools"]
    assert not (await client.ps()).models
    await client.generate("a")
    assert [model.model for model in (await client.ps()).models] == ["a"]
    await client.generate("a", keep_alive=0)

    async def is_gone() -> bool:
        return not (await client.ps()).models

    await eventually(is_gone, timeout_s=60)


async def test_keep_alive_outlasts_the_ttl(tmp_path: Path) -> None:
    """And what is then asked by somebody else goes by the `ttl` again."""
    entry = {"cmd": " ".join(server_argv(tiny_gguf())), "ttl": 1}
    config = {"ollamaApi": True, "startPort": free_ports(1), "sleep": {"mode": "off"}}
    text = json.dumps({**config, "models": {"a": entry}})
    async with (
        running_proxy(text, tmp_path, env=server_environment()) as running,
        ollama.AsyncClient(host=running.url) as client,
    ):
        await client.chat("a", messages=HI, options=SHORT, keep_alive=-1)
        idle_s = 0.0
        while idle_s < 2.5:
            view = (await running.models())["a"]
            assert view["state"] == "ready"
            idle_s = view["idle_s"]
            await asyncio.sleep(0.1)
        assert (await client.ps()).models[0].expires_at.year == 9999
        await running.chat("a")
        await running.becomes("a", "stopped")


async def test_an_answer_keeps_to_a_schema(client: ollama.AsyncClient) -> None:
    """llama-server's grammar sees to it; the small model only has to obey."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    answer = await client.chat(
        "a", messages=HI, format=schema, options={"num_predict": 64, "temperature": 0}
    )

    assert isinstance(json.loads(answer.message.content or "")["ok"], bool)


async def test_an_answer_is_json(client: ollama.AsyncClient) -> None:
    """As far as it goes: the small model doesn't know when to end."""
    options = {"num_predict": 16, "temperature": 0}
    answer = await client.chat("a", messages=HI, format="json", options=options)

    assert (answer.message.content or "").startswith("{")


def weather(days: int) -> str:
    """Tell the weather.

    Args:
        days: How many days ahead.
    """
    return "sunny" if days == 3 else "unknown"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ollama.AsyncClient]:
    """A client, and a model `t` that can what no small one can."""
    folder = tmp_path_factory.mktemp("talker")
    command = f"{sys.executable} -m tests.helpers.children.talker ${{PORT}}"
    config = {"ollamaApi": True, "startPort": free_ports(1), "sleep": {"mode": "off"}}
    text = json.dumps({**config, "models": {"t": {"cmd": command}}})
    async with (
        running_proxy(text, folder) as running,
        ollama.AsyncClient(host=running.url) as client,
    ):
        yield client


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_called(talker: ollama.AsyncClient, *, stream: bool) -> None:
    """And what they say goes back, by the client's own way of naming them."""
    messages: list[ollama.Message | dict[str, str]] = [{"role": "user", "content": "rain?"}]
    if stream:
        parts = [p async for p in await talker.chat("t", messages, tools=[weather], stream=True)]
        calls = [call for part in parts for call in part.message.tool_calls or ()]
        messages.append(ollama.Message(role="assistant", content="", tool_calls=calls))
        assert (parts[-1].done_reason, parts[-1].eval_count) == ("stop", 5)
    else:
        whole = await talker.chat("t", messages, tools=[weather])
        calls = [*(whole.message.tool_calls or ())]
        messages.append(whole.message)
    (call,) = calls
    assert (call.function.name, call.function.arguments) == ("weather", {"days": 3})
    said = weather(**call.function.arguments)
    messages.append({"role": "tool", "tool_name": call.function.name, "content": said})

    assert (await talker.chat("t", messages)).message.content == "It is sunny."


@pytest.mark.parametrize("stream", [False, True])
async def test_images_are_seen_and_thoughts_told(
    talker: ollama.AsyncClient, tmp_path: Path, *, stream: bool
) -> None:
    """From bytes or a file, in a chat or with a prompt."""
    jpeg = b"\xff\xd8\xff" + bytes(100)
    (tmp_path / "x.jpg").write_bytes(jpeg)
    message = ollama.Message(role="user", content="what?", images=[ollama.Image(value=jpeg)])
    chat: dict[str, Any] = {"messages": [message], "think": True}
    prompt: dict[str, Any] = {"prompt": "what?", "images": [tmp_path / "x.jpg"], "think": False}
    if stream:
        told = [p async for p in await talker.chat("t", stream=True, **chat)]
        text = "".join(p.message.content or "" for p in told).strip()
        thoughts = "".join(p.message.thinking or "" for p in told)
        generated = [p async for p in await talker.generate("t", stream=True, **prompt)]
        response = "".join(p.response or "" for p in generated).strip()
    else:
        answer = (await talker.chat("t", **chat)).message
        text, thoughts = answer.content or "", answer.thinking or ""
        response = (await talker.generate("t", **prompt)).response

    assert text == response == "image/jpeg of 103 bytes"
    assert thoughts == "Well."


async def test_errors_are_the_clients_own(client: ollama.AsyncClient) -> None:
    """With status and text, before a stream begins, too."""
    with pytest.raises(ollama.ResponseError, match="nope") as unknown:
        await client.chat("nope", messages=HI)
    assert unknown.value.status_code == 404
    image = [{"role": "user", "content": "what?", "images": ["iVBORw0KGgo="]}]
    with pytest.raises(ollama.ResponseError, match="image"):
        async for _ in await client.chat("a", messages=image, stream=True):
            pass
