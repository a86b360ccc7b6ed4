"""Models that outlive the proxy: real llama-servers, killed and handed over, and gone on with."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.e2e.conftest import Configure
from tests.helpers.fake_models import FakeModels
from tests.helpers.llama import server_environment
from tests.helpers.processes import lives
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.swap import swap
from tests.helpers.waiting import eventually

__all__ = ["swap"]

pytestmark = pytest.mark.e2e

ADOPT = "memory: {devices: {host: 900MiB}}\nruntime: {adopt: true}"
CONVERSATION = "tell me more of that, please " * 20


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Fail, and end it, when a proxy's last words didn't end what it had."""
    yield
    left = [
        int(found[1])
        for path in (tmp_path / "state" / "run").glob("*.json")
        if (found := re.search(r'"pid":(\d+)', path.read_text()))
    ]
    for pid in left:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    assert not left


def proxy_over(config: str, folder: Path) -> AbstractAsyncContextManager[ProxyProcess]:
    """Run the proxy over `config`."""
    return running_proxy(config, folder, env=server_environment())


async def killed(proxy: ProxyProcess) -> None:
    """End the proxy with SIGKILL."""
    proxy.process.kill()
    await asyncio.to_thread(proxy.process.wait)


async def pids_of(proxy: ProxyProcess) -> dict[str, int]:
    """The process of each model that has one."""
    return {name: m["pid"] for name, m in (await proxy.models()).items() if m["pid"]}


async def left_by_a_killed_proxy(config: str, folder: Path, names: str = "a") -> dict[str, int]:
    """Load models, kill their proxy, and return their processes."""
    async with proxy_over(config, folder) as proxy:
        for name in names:
            await proxy.chat(name)
        pids = await pids_of(proxy)
        await killed(proxy)
    assert all(map(lives, pids.values()))
    return pids


async def put_to_sleep(proxy: ProxyProcess, model: str) -> None:
    """Put `model` to sleep, once it is known how."""

    async def has_driver() -> bool:
        return bool((await proxy.models())[model]["driver"])

    await eventually(has_driver, what=f"{model} has a driver")
    status, answer = await proxy.post(f"/api/models/sleep/{model}")
    assert status == 200, answer


def text(answer: dict[str, Any]) -> str:
    """What a chat completion says."""
    return str(answer["choices"][0]["message"]["content"])


def is_stopped(pid: int) -> bool:
    """Whether a signal holds `pid`."""
    return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)


async def test_awake_and_asleep_models_outlive_a_kill_of_the_proxy(
    configure: Configure, tmp_path: Path, swap: None
) -> None:
    """The next one goes on with the same processes, and both conversations are still there."""
    config = configure(ADOPT, sleep="{after: 0}")
    async with proxy_over(config, tmp_path) as proxy:
        first = {name: await proxy.chat(name, CONVERSATION) for name in "ab"}
        await put_to_sleep(proxy, "a")
        before = await pids_of(proxy)
        await killed(proxy)
    assert lives(before["b"])
    assert is_stopped(before["a"])

    async with proxy_over(config, tmp_path) as proxy:
        states = [await proxy.state(name) for name in "ab"]
        assert is_stopped(before["a"])
        again = {name: await proxy.chat(name, CONVERSATION) for name in "ba"}
        after = await pids_of(proxy)

    assert states == ["asleep", "ready"]
    assert after == before
    for name in "ab":
        assert text(again[name]) == text(first[name])
        assert again[name]["timings"]["cache_n"] >= first[name]["timings"]["prompt_n"] - 1
        assert again[name]["timings"]["prompt_n"] <= 1
    assert not any(map(lives, before.values()))


@pytest.fixture
def engine(tmp_path: Path) -> FakeModels:
    """A model on a server with a sleep of its own."""
    fake = FakeModels(tmp_path, head="runtime: {adopt: true}\nsleep: {after: 0}")
    server = f"{sys.executable} -m tests.helpers.sleepy_server --port ${{PORT}}"
    steps = """sleepMode: enable
sleepEndpoints: [{endpoint: "/sleep?level=1"}]
wakeEndpoints: [{endpoint: /wake_up}]
isAsleepEndpoint: /is_sleeping"""
    return fake.add_command("a", f"{server} --journal {tmp_path / 'a.journal'}", more=steps)


async def left_asleep(fake: FakeModels, config: str, folder: Path) -> tuple[int, int]:
    """Put that model to sleep and kill its proxy; return its process and its port."""
    async with proxy_over(config, folder) as proxy:
        await proxy.chat("a")
        await put_to_sleep(proxy, "a")
        (pid,) = (await pids_of(proxy)).values()
        _, running = await proxy.get("/running")
        await killed(proxy)
    assert lives(pid)
    return pid, int(re.findall(r"--port (\d+)", running["running"][0]["cmd"])[0])


async def test_what_sleeps_by_its_own_endpoints_sleeps_on(
    engine: FakeModels, tmp_path: Path
) -> None:
    """It is asked whether it does, and nothing else until a request wakes it."""
    config = engine.yaml
    pid, _ = await left_asleep(engine, config, tmp_path)
    async with proxy_over(config, tmp_path) as proxy:
        assert await proxy.state("a") == "asleep"
        await proxy.chat("a")
        assert await pids_of(proxy) == {"a": pid}
    paths = [e["path"] for e in engine.journal("a") if e["event"] == "request"]
    assert paths.index("/sleep") < paths.index("/wake_up")
    assert (engine.count("a", "start"), engine.count("a", "killed")) == (1, 0)


async def test_what_was_woken_by_somebody_else_is_ended(engine: FakeModels, tmp_path: Path) -> None:
    """It says that it doesn't sleep: what it has done since nobody knows."""
    config = engine.yaml
    pid, port = await left_asleep(engine, config, tmp_path)
    async with aiohttp.ClientSession() as session:
        async with session.post(f"http://127.0.0.1:{port}/wake_up") as answer:
            assert answer.status == 200
    async with proxy_over(config, tmp_path) as proxy:
        await proxy.chat("a")
        assert not lives(pid)
        told = "it can't be woken (endpoints: it says that it doesn't sleep)"
        await eventually(lambda: told in proxy.log)
        assert (await pids_of(proxy))["a"] != pid


async def test_its_log_goes_on(configure: Configure, tmp_path: Path) -> None:
    """What it printed before is shown, and so is what it prints now; the file is ours alone."""
    config = configure(ADOPT)
    await left_by_a_killed_proxy(config, tmp_path)
    (file,) = (tmp_path / "state" / "run").glob("*.log")
    before = file.read_text()
    async with proxy_over(config, tmp_path) as proxy:
        shown = await log_of(proxy, "a")
        await proxy.chat("a", "something else")

        async def has_grown() -> bool:
            return len(await log_of(proxy, "a")) > len(before)

        await eventually(has_grown, what="its log grows")
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)]

    assert before
    assert shown.startswith(before)
    assert modes == [0o700, 0o600]
    assert not list(file.parent.iterdir())


async def log_of(proxy: ProxyProcess, model: str) -> str:
    """What the processes of `model` have printed."""
    async with proxy.session.get(f"/logs/stream/{model}?no-follow") as answer:
        return await answer.text()


@pytest.mark.parametrize("what", ["command", "port", "environment", "off", "removed"])
async def test_what_does_not_match_is_ended(
    configure: Configure, tmp_path: Path, what: str
) -> None:
    """Before anything is started, and the log says why."""
    config = configure(ADOPT, names="ab")
    (pid,) = (await left_by_a_killed_proxy(config, tmp_path)).values()
    changed = {
        "command": config.replace("--threads 1", "--threads 2"),
        "port": re.sub(r"startPort: (\d+)", lambda m: f"startPort: {int(m[1]) + 1}", config),
        "environment": config.replace("ram: 400MiB", "ram: 400MiB\n    env: [LLAMA_LOG_PREFIX=1]"),
        "off": config.replace("adopt: true", "adopt: false"),
        "removed": config.replace("  a:\n", "  c:\n"),
    }[what]
    assert changed != config
    async with proxy_over(changed, tmp_path) as proxy:
        gone = not lives(pid)
        await proxy.chat("b")

    assert gone
    await proxy.logs(f"ending pid {pid}")


async def test_one_that_died_meanwhile_is_started_afresh(
    configure: Configure, tmp_path: Path
) -> None:
    """Nothing is told of it but that it is down, and its note and log are gone."""
    config = configure(ADOPT)
    (pid,) = (await left_by_a_killed_proxy(config, tmp_path)).values()
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not lives(pid))
    async with proxy_over(config, tmp_path) as proxy:
        assert await proxy.state("a") == "stopped"
        assert not list((tmp_path / "state" / "run").iterdir())
        await proxy.chat("a")
        assert (await pids_of(proxy))["a"] != pid


async def test_the_end_of_an_adopted_process_is_noticed(
    configure: Configure, tmp_path: Path
) -> None:
    """It isn't our child, and yet the next request gets a new one."""
    config = configure(ADOPT)
    (pid,) = (await left_by_a_killed_proxy(config, tmp_path)).values()
    async with proxy_over(config, tmp_path) as proxy:
        assert await proxy.state("a") == "ready"
        os.kill(pid, signal.SIGKILL)
        await proxy.becomes("a", "stopped")
        await proxy.chat("a")
        assert (await pids_of(proxy))["a"] != pid


async def test_handover_ends_the_answers_under_way_first(
    configure: Configure, tmp_path: Path
) -> None:
    """SIGUSR2 in the middle of one: it comes whole, the proxy ends, its models don't."""
    config = configure(ADOPT)
    async with proxy_over(config, tmp_path) as proxy:
        for name in "ab":
            await proxy.chat(name)
        pids = await pids_of(proxy)
        os.kill(pids["a"], signal.SIGSTOP)  # in the middle of its answer until it is told to go on
        asked = asyncio.ensure_future(proxy.chat("a", max_tokens=60))

        async def is_served() -> bool:
            return bool((await proxy.models())["a"]["in_flight"])

        await eventually(is_served)
        proxy.process.send_signal(signal.SIGUSR2)
        await eventually(lambda: "SIGUSR2: handing over" in proxy.log)
        assert proxy.process.poll() is None
        os.kill(pids["a"], signal.SIGCONT)
        answer = await asked
        code = await asyncio.to_thread(proxy.process.wait, 60)
    assert code == 0
    assert answer["usage"]["completion_tokens"] == 60
    assert all(map(lives, pids.values()))

    async with proxy_over(config, tmp_path) as proxy:
        assert await pids_of(proxy) == pids
        assert [await proxy.state(name) for name in "ab"] == ["ready", "ready"]
    assert not any(map(lives, pids.values()))


async def test_handover_by_the_command_line(configure: Configure, tmp_path: Path) -> None:
    """`llmsnap handover` does what the signal does."""
    config = configure(ADOPT)
    async with proxy_over(config, tmp_path) as proxy:
        await proxy.chat("a")
        pids = await pids_of(proxy)
        done = await asyncio.to_thread(_handover, proxy.url)
        assert await asyncio.to_thread(proxy.process.wait, 60) == 0
    assert done.returncode == 0, done.stderr
    async with proxy_over(config, tmp_path) as proxy:
        assert await pids_of(proxy) == pids


def _handover(url: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "llmsnap", "handover", "--url", url]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


async def test_without_adopt_there_is_nothing_to_hand_over(
    configure: Configure, tmp_path: Path
) -> None:
    """The signal is only told of, the call refused; both go on serving."""
    async with proxy_over(configure(), tmp_path) as proxy:
        await proxy.chat("a")
        proxy.process.send_signal(signal.SIGUSR2)
        await eventually(lambda: "SIGUSR2: models can't be left" in proxy.log)
        status, answer = await proxy.post("/api/handover")
        assert status == 409, answer
        await proxy.chat("a")
