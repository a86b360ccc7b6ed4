"""The official OpenAI and Anthropic clients work against the proxy as against the real thing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import anthropic
import openai
import pytest
import pytest_asyncio

from tests.e2e.conftest import Configure
from tests.helpers.fake_models import FakeModels
from tests.helpers.llama import server_argv, server_environment
from tests.helpers.ports import free_port
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

WEATHER: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(
    configure: Configure, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ProxyProcess]:
    """Two real models behind the proxy."""
    folder = tmp_path_factory.mktemp("clients")
    async with running_proxy(configure(), folder, env=server_environment()) as running:
        yield running


def openai_client(proxy: ProxyProcess, *, retries: int = 0, key: str = "k") -> openai.AsyncOpenAI:
    """OpenAI's client, pointed at the proxy."""
    return openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key=key, max_retries=retries)


def anthropic_client(
    proxy: ProxyProcess, *, retries: int = 0, key: str = "k"
) -> anthropic.AsyncAnthropic:
    """Anthropic's client, pointed at the proxy."""
    return anthropic.AsyncAnthropic(base_url=proxy.url, api_key=key, max_retries=retries)


# ---- OpenAI ------------------------------------------------------------------------------------


async def test_openai_lists_and_chats(proxy: ProxyProcess, direct_texts: Mapping[str, str]) -> None:
    """The list names both models; the answer is the model's own."""
    async with openai_client(proxy) as client:
        assert [model.id async for model in client.models.list()] == ["a", "b"]
        answer = await client.chat.completions.create(
            model="a", messages=[{"role": "user", "content": "hi"}], temperature=0, max_tokens=16
        )

    assert answer.choices[0].message.content == direct_texts["a"]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


async def test_openai_streams(proxy: ProxyProcess, direct_texts: Mapping[str, str]) -> None:
    """A stream of a model that has to come up first, joined, is the whole text."""
    async with openai_client(proxy) as client:
        stream = await client.chat.completions.create(
            model="b",
            messages=[{"role": "user", "content": "hi"}],
            temperature=0,
            max_tokens=16,
            stream=True,
        )
        pieces = [event.choices[0].delta.content or "" async for event in stream if event.choices]

    assert "".join(pieces) == direct_texts["b"]


async def test_openai_embeds(models: Mapping[str, Path], tmp_path: Path) -> None:
    """Embeddings of a batch come back one by one."""
    command = " ".join(server_argv(models["a"], extra=("--embeddings", "--pooling", "mean")))
    config = f"startPort: {free_port()}\nmodels: {{e: {{cmd: {json.dumps(command)}}}}}"
    async with running_proxy(config, tmp_path, env=server_environment()) as proxy:
        async with openai_client(proxy) as client:
            answer = await client.embeddings.create(model="e", input=["hi", "ho"])

    assert [len(item.embedding) for item in answer.data] == [256, 256]


async def test_openai_tools_reach_the_server(tmp_path: Path) -> None:
    """What the client says of its tools arrives unchanged."""
    fake = FakeModels(tmp_path).add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy, openai_client(proxy) as client:
        answer = await client.chat.completions.with_raw_response.create(
            model="a",
            messages=[{"role": "user", "content": "hi"}],
            tools=[{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}],
        )

    sent = json.loads(json.loads(answer.text)["seen"]["body"])
    assert sent["tools"][0]["function"] == {"name": "weather", "parameters": WEATHER}


async def test_openai_errors_are_its_own_exceptions(tmp_path: Path) -> None:
    """Unknown model, wrong key, limit, failed start: each is the exception that fits."""
    fake = FakeModels(tmp_path, head="apiKeys: [right]")
    fake.add("slow", "--first-byte 60", more="concurrencyLimit: 1")
    fake.add("broken", "--exit 1 --stderr boom")
    fake.head += "\ngroups: {g: {swap: false, members: [slow, broken]}}"
    async with running_proxy(
        fake.yaml, tmp_path, headers={"Authorization": "Bearer right"}
    ) as proxy:
        async with openai_client(proxy, key="wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
        async with openai_client(proxy, key="right") as client:
            completions = client.chat.completions
            with pytest.raises(openai.NotFoundError, match="nope"):
                await completions.create(model="nope", messages=[])
            with pytest.raises(openai.InternalServerError, match="boom") as failed:
                await completions.create(model="broken", messages=[])
            assert failed.value.status_code == 502
            hanging = asyncio.ensure_future(completions.create(model="slow", messages=[]))
            await eventually(lambda: fake.count("slow", "request") == 1)
            with pytest.raises(openai.RateLimitError):
                await completions.create(model="slow", messages=[])
            hanging.cancel()


async def test_openai_retries_find_the_model_up(tmp_path: Path) -> None:
    """A start that fails once is retried by the client after `Retry-After`, and then answers."""
    fake = FakeModels(tmp_path)
    flag = tmp_path / "second"
    first = f"test -e {flag} || {{ touch {flag}; exit 1; }}"
    fake.add_command("a", f"sh -c '{first}; exec {fake.command('a')}'")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with openai_client(proxy, retries=2) as client:
            answer = await client.chat.completions.create(model="a", messages=[])

    assert answer.choices[0].message.content == "hello"


# ---- Anthropic ---------------------------------------------------------------------------------


async def test_anthropic_talks_and_counts(proxy: ProxyProcess) -> None:
    """`/v1/messages` and `/v1/messages/count_tokens` of the real server."""
    async with anthropic_client(proxy) as client:
        answer = await client.messages.create(
            model="a", max_tokens=8, messages=[{"role": "user", "content": "hi"}]
        )
        counted = await client.messages.count_tokens(
            model="a", messages=[{"role": "user", "content": "hi"}]
        )

    assert answer.content[0].type == "text"
    assert answer.usage.output_tokens == 8
    assert counted.input_tokens > 0


async def test_anthropic_streams(proxy: ProxyProcess) -> None:
    """Its typed events come through; the text isn't empty."""
    async with (
        anthropic_client(proxy) as client,
        client.messages.stream(
            model="b", max_tokens=8, messages=[{"role": "user", "content": "hi"}]
        ) as stream,
    ):
        text = "".join([piece async for piece in stream.text_stream])

    assert len(text) >= 8


async def test_anthropic_tools_reach_the_server(tmp_path: Path) -> None:
    """What the client says of its tools arrives unchanged."""
    fake = FakeModels(tmp_path).add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy, anthropic_client(proxy) as client:
        answer = await client.messages.with_raw_response.create(
            model="a",
            max_tokens=8,
            messages=[{"role": "user", "content": "hi"}],
            tools=[{"name": "weather", "input_schema": {"type": "object", "properties": {}}}],
        )

    sent = json.loads(json.loads(await answer.text())["seen"]["body"])
    assert sent["tools"] == [
        {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
    ]


async def test_anthropic_errors_are_its_own_exceptions(tmp_path: Path) -> None:
    """Unknown model, wrong key, failed start: each is the exception that fits, with its type."""
    fake = FakeModels(tmp_path, head="apiKeys: [right]").add("broken", "--exit 1 --stderr boom")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with anthropic_client(proxy, key="wrong") as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.messages.create(model="broken", max_tokens=1, messages=[])
        async with anthropic_client(proxy, key="right") as client:
            with pytest.raises(anthropic.NotFoundError, match="nope"):
                await client.messages.create(model="nope", max_tokens=1, messages=[])
            with pytest.raises(anthropic.InternalServerError, match="boom"):
                await client.messages.create(model="broken", max_tokens=1, messages=[])


async def test_anthropic_retries_find_the_model_up(tmp_path: Path) -> None:
    """A start that fails once is retried by the client, and then answers."""
    fake = FakeModels(tmp_path)
    flag = tmp_path / "second"
    first = f"test -e {flag} || {{ touch {flag}; exit 1; }}"
    fake.add_command("a", f"sh -c '{first}; exec {fake.command('a')}'")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with anthropic_client(proxy, retries=2) as client:
            answer = await client.messages.with_raw_response.create(
                model="a", max_tokens=1, messages=[]
            )

    assert json.loads(await answer.text())["seen"]["path"].startswith("/v1/messages")
