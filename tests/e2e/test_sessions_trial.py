"""The self-test of restores, with real llama-servers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.conftest import ONE_AT_A_TIME, Configure
from tests.e2e.test_sessions import LONG, Talk, logged, say
from tests.helpers.llama import made_gguf, server_argv
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

OF_USE = "restores are of use"


def sessions(proxy: ProxyProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `llmsnap sessions`."""
    command = [sys.executable, "-m", "llmsnap", "sessions", *words, "--url", proxy.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


async def test_on_request_a_model_is_loaded_and_tested(
    configure: Configure, tmp_path: Path
) -> None:
    """Nothing is left of the test; over a conversation none is made."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        found = await asyncio.to_thread(sessions, proxy, "test", "a")
        assert found.returncode == 0, found.stderr
        assert found.stdout.startswith("used: 600 of 600 tokens were found")
        assert [*(proxy.state_dir / "sessions").glob("*.kv")] == []

        await say(proxy, [], LONG)
        status, answer = await proxy.post("/api/sessions/test/a")
        assert (status, "unload the model" in str(answer)) == (409, True)

        await proxy.post("/api/models/unload")
        assert (await proxy.post("/api/sessions/test/a"))[1]["verdict"] == "used"


async def test_an_idle_model_that_nobody_knows_is_tested_once(
    configure: Configure, tmp_path: Path
) -> None:
    """It was only loaded; the verdict outlives the proxy."""
    config = configure(names="a")
    async with running_proxy(config, tmp_path) as proxy:
        await proxy.post("/api/models/load/a")
        await logged(proxy, OF_USE)
        assert (await proxy.models())["a"]["in_flight"] == 0

        talk: Talk = []
        assert (await say(proxy, talk, LONG))["prompt_n"] > 1500
        await proxy.post("/api/models/unload")
        assert (await say(proxy, talk, "go on"))["cache_n"] > 1500
    async with running_proxy(config.replace(" -np 1", " -np 2"), tmp_path) as proxy:
        status, answer = await proxy.post("/api/sessions/test/a")
        assert (status, answer["verdict"]) == (200, "used")


async def test_a_test_beside_a_conversation_leaves_it_alone(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """With two slots, when it is idle: what is in the other one is still there."""
    command = " ".join(server_argv(models["a"], np=2, extra=["--cache-ram", "0"]))
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
    async with running_proxy(config, tmp_path) as proxy:
        talk: Talk = []
        held = (await say(proxy, talk, "abc def " * 60))["prompt_n"]
        await logged(proxy, OF_USE)
        assert (await say(proxy, talk, "go on"))["cache_n"] >= held


async def test_a_request_ends_the_test_and_is_served(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """At once, as if there were none."""
    command = " ".join(server_argv(models["a"], np=1, extra=["-b", "16", "-ub", "16"]))
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
    async with running_proxy(config, tmp_path) as proxy:
        await proxy.post("/api/models/load/a")
        test = asyncio.ensure_future(proxy.post("/api/sessions/test/a"))

        async def tested() -> bool:
            return bool((await proxy.models())["a"]["in_flight"])

        await eventually(tested, what="it is tested")
        answer = await proxy.chat("a")
        assert answer["choices"][0]["message"]["content"]
        status, said = await test
        assert (status, "all is quiet" in str(said)) == (409, True), said


@pytest.mark.parametrize(("more", "verdict"), [((), "useless"), (("--swa-full",), "used")])
async def test_a_sliding_window_is_found_out(
    tmp_path: Path, more: tuple[str, ...], verdict: str
) -> None:
    """Nothing is saved of it then."""
    model = made_gguf("swa-512", layers=6, window=512)
    command = " ".join(server_argv(model, extra=more))
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
    async with running_proxy(config, tmp_path) as proxy:
        _, found = await proxy.post("/api/sessions/test/a")
        assert found["verdict"] == verdict, found
        await proxy.post("/api/models/unload")
        talk: Talk = []
        await say(proxy, talk, LONG)
        await proxy.post("/api/models/unload")
        _, answer = await proxy.get("/api/sessions")
        assert len(answer["sessions"]) == (verdict == "used")
        assert bool(answer["refusals"]) == (verdict == "useless")


async def test_who_wants_the_room_ends_the_test(models: Mapping[str, Path], tmp_path: Path) -> None:
    """Another model isn't kept waiting by it."""
    slow = " ".join(server_argv(models["a"], extra=["-b", "16", "-ub", "16"]))
    other = " ".join(server_argv(models["b"]))
    config = (
        f"{ONE_AT_A_TIME}\nsleep: {{mode: off}}\nstartPort: {free_ports(2)}\n"
        f"models: {{a: {{cmd: '{slow}', ram: 400MiB}}, b: {{cmd: '{other}', ram: 400MiB}}}}"
    )
    async with running_proxy(config, tmp_path) as proxy:
        await proxy.post("/api/models/load/a")
        test = asyncio.ensure_future(proxy.post("/api/sessions/test/a"))

        async def tested() -> bool:
            return bool((await proxy.models())["a"]["in_flight"])

        await eventually(tested, what="it is tested")
        await proxy.chat("b")
        status, said = await test
        assert (status, "all is quiet" in str(said)) == (409, True), said
        assert await proxy.state("a") == "stopped"
