"""Saved conversations of models that sleep, with real llama-servers and real swap."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import ONE_AT_A_TIME, Configure
from tests.e2e.test_sessions import LONG, Talk, say
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.swap import swap
from tests.helpers.waiting import eventually

__all__ = ["swap"]

pytestmark = pytest.mark.e2e

BY_PAGEOUT = "{mode: pageout}"
LOSES_ITS_CACHE = """    sleepMode: endpoints
    sleepEndpoints: [{endpoint: "/slots/0?action=erase", body: "{}"}]
    wakeEndpoints: [{endpoint: /health, method: GET}]"""


async def driver_known(proxy: ProxyProcess) -> None:
    """Wait until it is known how the model sleeps."""

    async def can_sleep() -> bool:
        return bool((await proxy.models())["a"]["driver"])

    await eventually(can_sleep, what="a can sleep")


async def put_to_sleep(proxy: ProxyProcess) -> None:
    """As soon as it is known how that goes."""
    await driver_known(proxy)
    status, answer = await proxy.post("/api/models/sleep/a")
    assert (status, answer["state"]) == (200, "asleep"), answer


def saved_files(proxy: ProxyProcess) -> int:
    """How many conversations there are on disk."""
    return len([*(proxy.state_dir / "sessions").glob("*.kv")])


async def test_a_conversation_survives_a_sleep_that_loses_the_cache(
    configure: Configure, tmp_path: Path
) -> None:
    """It is saved before, however little is new, and back for the first request after it."""
    config = configure("sessions: {snapshot: off}", names="a", more=LOSES_ITS_CACHE, sleep="{}")
    async with running_proxy(config, tmp_path) as proxy:
        talk: Talk = []
        held = 0
        for text in (LONG, "go on", "and on"):
            found = await say(proxy, talk, text)
            assert found["cache_n"] >= 0.95 * held
            held = found["cache_n"] + found["prompt_n"]
            await put_to_sleep(proxy)
            assert saved_files(proxy) == 1


@pytest.mark.usefixtures("swap")
async def test_what_is_new_is_saved_before_a_sleep(configure: Configure, tmp_path: Path) -> None:
    """It may be killed while it sleeps."""
    config = configure(ONE_AT_A_TIME, names="a", sleep=BY_PAGEOUT)
    async with running_proxy(config, tmp_path) as proxy:
        talk: Talk = []
        held = (await say(proxy, talk, LONG))["prompt_n"]
        await put_to_sleep(proxy)
        assert saved_files(proxy) == 1

        psutil.Process((await proxy.models())["a"]["pid"]).kill()
        await proxy.becomes("a", "stopped")
        assert (await say(proxy, talk, "go on"))["cache_n"] >= 0.95 * held


@pytest.mark.usefixtures("swap")
@pytest.mark.parametrize("wakes", [True, False])
async def test_what_sleeps_is_woken_to_be_saved_only_if_that_is_wanted(
    configure: Configure, tmp_path: Path, wakes: bool
) -> None:
    """Before it is stopped; what sleeps and was saved isn't woken either."""
    more = f"sessions: {{snapshot: off, wakeToSave: {str(wakes).lower()}}}"
    config = configure(f"{ONE_AT_A_TIME}\n{more}", names="a", sleep=BY_PAGEOUT)
    async with running_proxy(config, tmp_path) as proxy:
        talk: Talk = []
        held = (await say(proxy, talk, LONG))["prompt_n"]
        await put_to_sleep(proxy)
        assert saved_files(proxy) == 0
        await proxy.post("/api/models/unload")
        assert saved_files(proxy) == wakes
        found = await say(proxy, talk, "go on")
        assert (found["cache_n"] >= 0.95 * held) == wakes


@pytest.mark.usefixtures("swap")
async def test_e16_a_save_that_hangs_holds_up_nobody_for_long(tmp_path: Path) -> None:
    """The cache survives the sleep: who waits for the room waits no longer for its insurance."""
    saved = tmp_path / "saved"
    command = (
        f"{sys.executable} -m tests.helpers.fake_llama --host 127.0.0.1 -np 1 --port ${{PORT}} "
        f"--slot-save-path {saved}/"
    )
    config = f"""
        {ONE_AT_A_TIME}
        startPort: {free_ports(2)}
        sleep: {BY_PAGEOUT}
        sessions: {{dir: {saved}}}
        models:
          a: {{engine: llama-server, cmd: '{command}', ram: 400MiB, env: [FAKE_FAULT=stuck]}}
          b: {{engine: llama-server, cmd: '{command}', ram: 400MiB}}
    """
    async with running_proxy(config, tmp_path) as proxy:
        await proxy.chat("a", LONG)
        await driver_known(proxy)
        began = asyncio.get_running_loop().time()
        await proxy.chat("b")
        took_s = asyncio.get_running_loop().time() - began
        print(f"swap took {took_s:.2f} s")
        assert await proxy.state("a") == "asleep"
        await proxy.logs("sleeps unsaved: somebody waits")
