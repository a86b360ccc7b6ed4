"""Saved conversations when the configuration changes, with real llama-servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import ONE_AT_A_TIME, Configure
from tests.e2e.test_reload import reload, rewrite
from tests.e2e.test_sessions import LONG, Talk, say
from tests.helpers.proxy_process import ProxyProcess, running_proxy

pytestmark = pytest.mark.e2e


def settings(**sessions: str) -> str:
    """The head of a configuration."""
    said = ", ".join(f"{key}: {value}" for key, value in sessions.items())
    return f"{ONE_AT_A_TIME}\nsessions: {{{said}}}"


def files(proxy: ProxyProcess) -> list[Path]:
    """What is saved."""
    return sorted((proxy.state_dir / "sessions").glob("*.kv"))


async def test_a_model_with_another_command_keeps_its_conversation(
    configure: Configure, tmp_path: Path
) -> None:
    """Its process is replaced; it is saved before, and back in the new one."""
    text = configure(names="a")
    async with running_proxy(text, tmp_path) as proxy:
        talk: Talk = []
        held = (await say(proxy, talk, LONG))["prompt_n"]
        before = (await proxy.models())["a"]["pid"]
        rewrite(tmp_path, text.replace("--threads 1", "--threads 2"))
        assert (await reload(proxy))["restarted"] == ["a"]
        assert (await say(proxy, talk, "go on"))["cache_n"] >= 0.95 * held
        assert (await proxy.models())["a"]["pid"] != before

        rewrite(tmp_path, text.replace("--threads 1", "--rope-freq-base 20000"))
        await reload(proxy)
        found = await say(proxy, talk, "and on")
        assert found["cache_n"] == 0  # what was computed otherwise means nothing


async def test_what_is_saved_follows_the_settings_at_once(
    configure: Configure, tmp_path: Path
) -> None:
    """What a running model is saved by, and how much room there is."""
    text = configure(settings(minTokens="3000"), names="a")
    async with running_proxy(text, tmp_path) as proxy:
        talk: Talk = []
        await say(proxy, talk, LONG)
        rewrite(tmp_path, text.replace("3000", "256"))
        changed = await reload(proxy)
        assert (changed["settings"], changed.get("waiting")) == (["sessions"], None)
        await proxy.post("/api/models/unload")
        assert len(files(proxy)) == 1

        rewrite(tmp_path, text.replace("minTokens: 3000", "budget: 1000"))
        await reload(proxy)
        await say(proxy, talk, "go on")
        await proxy.post("/api/models/unload")
        assert files(proxy) == []


async def test_whether_and_where_is_settled_at_the_start(
    configure: Configure, tmp_path: Path
) -> None:
    """It is named as waiting, and all goes on as before: no process, and no file, is given up."""
    text = configure(settings(mode="auto"), names="a")
    async with running_proxy(text, tmp_path) as proxy:
        talk: Talk = []
        held = (await say(proxy, talk, LONG))["prompt_n"]
        for other in ("mode: off", f"dir: {tmp_path}/elsewhere"):
            rewrite(tmp_path, text.replace("mode: auto", other))
            changed = await reload(proxy)
            assert "at the start" in changed["waiting"][0]
            assert "restarted" not in changed
        await proxy.post("/api/models/unload")
        assert len(files(proxy)) == 1
        assert not (tmp_path / "elsewhere").exists()
        assert (await say(proxy, talk, "go on"))["cache_n"] >= 0.95 * held
