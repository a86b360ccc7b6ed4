"""Real llama-servers over real, tiny models, for every end-to-end test."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_port, free_ports
from tests.helpers.waiting import eventually

Configure = Callable[..., str]

ONE_AT_A_TIME = "memory: {devices: {host: 600MiB}}"


@pytest.fixture(scope="session")
def models() -> dict[str, Path]:
    """Three small models with weights of their own, so that each answers in its own words."""
    return {name: tiny_gguf(seed) for seed, name in enumerate("abc")}


@pytest.fixture(scope="session")
def configure(models: Mapping[str, Path]) -> Configure:
    """Write a configuration over the small models, each declared at 400 MiB."""

    def text(
        head: str = ONE_AT_A_TIME, *, names: str = "ab", more: str = "", sleep: str = "{mode: off}"
    ) -> str:
        lines = [head, f"sleep: {sleep}", f"startPort: {free_ports(len(names))}", "models:"]
        for name in names:
            command = " ".join(server_argv(models[name]))
            lines += [f"  {name}:", f"    cmd: {command}", "    ram: 400MiB", more]
        return "\n".join(lines)

    return text


@contextmanager
def direct_server(model: Path, *extra: str) -> Iterator[str]:
    """Run a llama-server with nothing in front of it, with `extra` options; yields its URL."""
    port = free_port()
    argv = [arg.replace("${PORT}", str(port)) for arg in server_argv(model, extra=extra)]
    process = subprocess.Popen(
        argv, env=server_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def text_of(url: str, prompt: str, *, model: str = "x", tokens: int = 16) -> str:
    """Ask a chat server at temperature 0; returns the text once it is up."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": tokens,
    }
    # A connection each: llama-server gives one up that rests for a few seconds.
    once = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(url, connector=once) as session:

        async def up() -> bool:
            try:
                async with session.get("/health") as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await eventually(up)
        async with session.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
            return str((await answer.json())["choices"][0]["message"]["content"])


@pytest.fixture(scope="session")
def direct_texts(models: Mapping[str, Path]) -> dict[str, str]:
    """What each model says to `hi` when nothing stands in front of it."""

    async def ask() -> dict[str, str]:
        texts = {}
        for name, path in models.items():
            with direct_server(path) as url:
                texts[name] = await text_of(url, "hi")
        return texts

    return asyncio.run(ask())
