"""Saved conversations of a model with sliding windows: worth nothing, or all, by one option.

The model is a small one of Gemma 3's architecture; its llama-server says "restored" either way.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.e2e.test_sessions import LONG, Talk, logged, say
from tests.helpers.llama import made_gguf, server_argv
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy

pytestmark = pytest.mark.e2e


def proxy_over(folder: Path, *options: str) -> AbstractAsyncContextManager[ProxyProcess]:
    """Run a proxy with that model; `options` go to its server."""
    command = " ".join(server_argv(made_gguf("window", layers=6, window=128), extra=options))
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
    return running_proxy(config, folder)


async def stop(proxy: ProxyProcess) -> None:
    """End the model's process, and what it is to do before."""
    await proxy.post("/api/models/unload")
    await proxy.becomes("a", "stopped")


def kept(proxy: ProxyProcess) -> int:
    """How many conversations are saved."""
    return len([*(proxy.state_dir / "sessions").glob("*.kv")])


async def test_e02_without_the_option_restores_are_found_to_be_useless(tmp_path: Path) -> None:
    """After the first one; it is said once, and nothing is saved again, nor by the next proxy."""
    told = "restores are useless: of 1572 tokens 0 were found in the cache"
    async with proxy_over(tmp_path) as proxy:
        talk: Talk = []
        await say(proxy, talk, LONG)
        await stop(proxy)
        assert kept(proxy) == 1
        assert (await say(proxy, talk, "go on"))["cache_n"] == 0
        await logged(proxy, told)
        await stop(proxy)
        assert (await say(proxy, talk, "and on"))["cache_n"] == 0
        await stop(proxy)
        assert kept(proxy) == 0
        await proxy.logs("restores are useless", times=1)
        await proxy.logs("--swa-full")
        _, answer = await proxy.get("/api/sessions")
        assert told in answer["refusals"]["a"]
    async with proxy_over(tmp_path) as proxy:
        await say(proxy, talk, "and on")
        await stop(proxy)
        assert kept(proxy) == 0
        assert "restores are useless" not in proxy.log


async def test_e02_with_the_option_they_are_used(tmp_path: Path) -> None:
    """Also though they were useless without: what isn't the same is judged by itself."""
    async with proxy_over(tmp_path) as proxy:
        talk: Talk = []
        await say(proxy, talk, LONG)
        await stop(proxy)
        await say(proxy, talk, "go on")
        await logged(proxy, "restores are useless")
    async with proxy_over(tmp_path, "--swa-full") as proxy:
        first = await say(proxy, talk, "and on")
        await stop(proxy)
        found = await say(proxy, talk, "and further")
        assert found["cache_n"] >= 0.95 * (first["prompt_n"] + first["predicted_n"] - 1)
        await stop(proxy)
        assert kept(proxy) == 1
        assert "restores are useless" not in proxy.log


async def test_e02_what_parts_from_a_saved_one_isnt_restored_in_vain_twice(tmp_path: Path) -> None:
    """It says nothing of what goes on from one; that is still saved, and tried."""
    async with proxy_over(tmp_path) as proxy:
        talk: Talk = []
        await say(proxy, talk, LONG)
        await say(proxy, talk, "go on")
        await stop(proxy)
        assert (await say(proxy, talk[:2], "another way"))["cache_n"] == 0
        await logged(proxy, "restores are useless for what parts from a saved conversation")
        await stop(proxy)
        await say(proxy, talk[:2], "a third way")
        await proxy.logs("are back in slot", times=1)
        await stop(proxy)
        await say(proxy, talk, "and on")
        await proxy.logs("are back in slot", times=2)


async def test_e02_with_the_option_branches_are_of_use(tmp_path: Path) -> None:
    """The part that was asked before is in the cache."""
    async with proxy_over(tmp_path, "--swa-full") as proxy:
        talk: Talk = []
        first = await say(proxy, talk, LONG)
        await say(proxy, talk, "go on")
        for other in ("another way", "a third way"):
            await stop(proxy)
            found = await say(proxy, talk[:2], other)
            assert found["cache_n"] >= 0.95 * first["prompt_n"]
        assert "restores are useless" not in proxy.log
