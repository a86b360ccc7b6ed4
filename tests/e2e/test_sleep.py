"""Models that sleep: real llama-servers, real swap, through the real command line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from mmap import PROT_READ, mmap
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.conftest import ONE_AT_A_TIME, Configure, direct_server, text_of
from tests.helpers.fake_models import FakeModels
from tests.helpers.llama import made_gguf, server_argv, server_environment
from tests.helpers.ports import free_ports
from tests.helpers.processes import lives
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.swap import swap
from tests.helpers.waiting import eventually

__all__ = ["swap"]

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("swap")]

TO_MAKE_ROOM = "{after: 0}"
"""Models sleep, but only when another one is wanted."""

CONVERSATION = "tell me more of that, please " * 20
IMPATIENT = "schedule: {fairAfter: 100ms, preemptAfter: 200ms}"


@asynccontextmanager
async def proxy_over(config: str, folder: Path) -> AsyncIterator[ProxyProcess]:
    """The proxy over `config`, each model with its way to sleep found by the first request."""
    async with running_proxy(config, folder, env=server_environment()) as proxy:
        yield proxy


async def known(proxy: ProxyProcess, model: str) -> None:
    """Wait until it is known how `model` sleeps."""

    async def has_driver() -> bool:
        return bool((await proxy.models())[model]["driver"] == "pageout")

    await eventually(has_driver, what=f"{model} has a driver")


def text(answer: dict[str, Any]) -> str:
    """What a chat completion says."""
    return str(answer["choices"][0]["message"]["content"])


async def streamed(proxy: ProxyProcess, model: str, tokens: int) -> AsyncIterator[tuple[str, str]]:
    """Yield what comes of a streamed completion: comments, and pieces of text."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0,
        "max_tokens": tokens,
        "stream": True,
    }
    async with proxy.session.post("/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
        async for line in answer.content:
            if line.startswith(b":"):
                yield "comment", line.decode().strip()
            elif line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    yield "text", choice["delta"].get("content") or ""
            elif line == b"data: [DONE]\n":
                return
    raise AssertionError("the stream ended without [DONE]")


async def test_a_conversation_is_still_there_when_its_model_comes_back(
    configure: Configure, models: dict[str, Path], tmp_path: Path
) -> None:
    """a, b, a again on memory for one: the same process, its KV cache, and the right text."""
    with direct_server(models["a"]) as url:
        expected = await text_of(url, CONVERSATION)
    async with proxy_over(configure(sleep=TO_MAKE_ROOM), tmp_path) as proxy:
        first = await proxy.chat("a", CONVERSATION)
        await known(proxy, "a")
        pid = (await proxy.models())["a"]["pid"]
        await proxy.chat("b")
        assert await proxy.state("a") == "asleep"
        again = await proxy.chat("a", CONVERSATION)
        shown = (await proxy.models())["a"]

    assert text(first) == text(again) == expected
    assert again["timings"]["cache_n"] >= first["timings"]["prompt_n"] - 1
    assert again["timings"]["prompt_n"] <= 1
    assert (shown["pid"], shown["generation"]) == (pid, 1)
    assert shown["keeps_state"]


async def test_an_idle_model_sleeps_by_itself(configure: Configure, tmp_path: Path) -> None:
    """After `sleep.after`; what holds its memory then is swap."""
    async with proxy_over(configure(sleep="{after: 300ms}"), tmp_path) as proxy:
        await proxy.chat("a")
        await proxy.becomes("a", "asleep")
        slept = (await proxy.models())["a"]["last_sleep"]["bytes"]

    assert slept["host"] < 0
    assert slept["swap"] > 0


@pytest.mark.slow
async def test_an_answer_that_was_paused_goes_on_to_the_last_byte(
    configure: Configure, models: dict[str, Path], tmp_path: Path
) -> None:
    """b is served in the middle of a's stream; a's text is that of an undisturbed run."""
    with direct_server(models["a"]) as url:
        expected = await text_of(url, "hi", tokens=1500)
    config = configure(
        f"{ONE_AT_A_TIME}\n{IMPATIENT}", sleep=TO_MAKE_ROOM, more="    timeSlice: 100ms"
    )
    async with proxy_over(config, tmp_path) as proxy:
        pieces: list[str] = []
        got_going = asyncio.Event()

        async def read() -> None:
            async for kind, piece in streamed(proxy, "a", 1500):
                if kind == "text":
                    pieces.append(piece)
                    got_going.set()

        reading = asyncio.ensure_future(read())
        await got_going.wait()
        await known(proxy, "a")
        await proxy.chat("b")
        paused = (await proxy.models())["a"]
        assert not reading.done()
        await reading
        await eventually(lambda: "to put a to sleep" in proxy.log)

    assert paused["state"] in ("asleep", "waking", "ready")
    assert paused["in_flight"] == 1
    assert "".join(pieces) == expected


@pytest.mark.slow
async def test_r17_an_answer_goes_on_after_all_memory_was_given_back(
    configure: Configure, models: dict[str, Path], tmp_path: Path
) -> None:
    """It is paused at once, its model leaves, and no token is lost."""
    with direct_server(models["a"]) as url:
        expected = await text_of(url, "hi", tokens=1500)
    async with proxy_over(configure(sleep=TO_MAKE_ROOM), tmp_path) as proxy:
        said: list[str] = []

        async def listen() -> None:
            async for kind, piece in streamed(proxy, "a", 1500):
                if kind == "text":
                    said.append(piece)

        listening = asyncio.ensure_future(listen())
        await eventually(lambda: bool(said))
        await known(proxy, "a")
        status, answer = await proxy.post("/api/release")
        assert (status, answer["models"]["a"]) == (200, "asleep")
        shown = (await proxy.models())["a"]
        assert (shown["paused"], shown["bytes"].get("host", 0) < 100 * 2**20) == (1, True)
        await proxy.post("/api/resume")
        await listening
        assert "".join(said) == expected


async def test_asleep_is_shown_and_nothing_wakes_it_by_accident(
    configure: Configure, tmp_path: Path
) -> None:
    """Old clients see it as loaded; monitors get what was last seen; its process stays stopped."""
    async with proxy_over(configure(sleep=TO_MAKE_ROOM), tmp_path) as proxy:
        await proxy.chat("a")
        await known(proxy, "a")
        assert (await proxy.get("/upstream/a/props"))[0] == 200
        status, slept = await proxy.post("/api/models/sleep/a")
        assert (status, slept["state"], slept["driver"]) == (200, "asleep", "pageout")

        assert (await proxy.get("/upstream/a/props"))[0] == 200
        assert (await proxy.get("/upstream/a/slots"))[0] == 409
        _, running = await proxy.get("/running")
        _, listed = await proxy.get("/v1/models")
        assert [(m["model"], m["state"]) for m in running["running"]] == [("a", "asleep")]
        assert [m["status"]["value"] for m in listed["data"]] == ["loaded", "unloaded"]
        assert psutil.Process(slept["pid"]).status() == psutil.STATUS_STOPPED

        status, woken = await proxy.post("/api/models/wake/a")
        assert (status, woken["state"], woken["pid"]) == (200, "ready", slept["pid"])
        assert woken["phases"]["wake_s"] > 0


async def test_sleep_that_is_asked_for_at_a_bad_time_is_refused(
    configure: Configure, tmp_path: Path
) -> None:
    """Stopped, or in the middle of an answer: 409 with the reason, and nothing else happens."""
    async with proxy_over(configure(sleep=TO_MAKE_ROOM), tmp_path) as proxy:
        status, answer = await proxy.post("/api/models/sleep/a")
        assert status == 409
        assert "stopped" in answer["error"]["message"]

        pieces = streamed(proxy, "a", 300)
        await anext(pieces)
        status, answer = await proxy.post("/api/models/sleep/a")
        assert status == 409
        assert "busy" in answer["error"]["message"]
        assert len([piece async for piece in pieces]) > 100
        assert (await proxy.post("/api/models/wake/b"))[0] == 409


async def test_a_model_that_dies_asleep_starts_cold(configure: Configure, tmp_path: Path) -> None:
    """The request that wakes it notices nothing but the time."""
    async with proxy_over(configure(sleep=TO_MAKE_ROOM), tmp_path) as proxy:
        await proxy.chat("a")
        await known(proxy, "a")
        _, slept = await proxy.post("/api/models/sleep/a")
        os.kill(slept["pid"], signal.SIGKILL)
        await proxy.chat("a")

        assert (await proxy.models())["a"]["generation"] == 2


async def test_a_killed_proxy_leaves_nothing_frozen(configure: Configure, tmp_path: Path) -> None:
    """A stopped child can't hear anything but SIGKILL, and that is what it gets."""
    async with proxy_over(configure(sleep=TO_MAKE_ROOM), tmp_path) as proxy:
        await proxy.chat("a")
        await known(proxy, "a")
        _, slept = await proxy.post("/api/models/sleep/a")
        await proxy.stop(signal.SIGKILL)
        await eventually(lambda: not lives(slept["pid"]))


@pytest.mark.slow
async def test_shutdown_with_sleepers_and_a_paused_answer(
    configure: Configure, tmp_path: Path
) -> None:
    """The paused answer is finished, those asleep end at once, and nothing is left."""
    config = configure(
        f"{ONE_AT_A_TIME}\n{IMPATIENT}",
        names="abc",
        sleep=TO_MAKE_ROOM,
        more="    timeSlice: 100ms",
    )
    async with proxy_over(config, tmp_path) as proxy:
        for name in "bc":
            await proxy.chat(name)
            await known(proxy, name)
        got: list[str] = []
        got_going = asyncio.Event()

        async def read() -> None:
            async for kind, piece in streamed(proxy, "a", 1500):
                if kind == "text":
                    got.append(piece)
                    got_going.set()

        reading = asyncio.ensure_future(read())
        await got_going.wait()
        await known(proxy, "a")
        await proxy.chat("b")
        pids = [model["pid"] for model in (await proxy.models()).values() if model["pid"]]
        code = await proxy.stop(signal.SIGTERM)
        await reading

    assert code == 0
    assert len("".join(got)) >= 1500
    assert len(pids) == 3
    assert not any(map(lives, pids))


# ---- by an engine's own endpoints --------------------------------------------------------------

STEPS = """sleepMode: enable
sleepEndpoints: [{endpoint: "/sleep?level=1"}]
wakeEndpoints: [{endpoint: /wake_up}]
isAsleepEndpoint: /is_sleeping"""


@pytest.fixture
def engines(tmp_path: Path) -> Callable[..., FakeModels]:
    """Models a and b on servers with a sleep of their own."""

    def build(options: str = "") -> FakeModels:
        fake = FakeModels(tmp_path, head=f"sleep: {TO_MAKE_ROOM}")
        server = f"{sys.executable} -m tests.helpers.sleepy_server --port ${{PORT}}"
        for name in "ab":
            journal = tmp_path / f"{name}.journal"
            fake.add_command(name, f"{server} --journal {journal} {options}", more=STEPS)
        return fake

    return build


def asked(fake: FakeModels, model: str) -> list[str]:
    """Which paths the server of `model` was asked for, probes of its health aside."""
    paths = [e["path"] for e in fake.journal(model) if e["event"] == "request"]
    return [path for path in paths if path != "/health"]


async def test_p61_p62_a_sleeps_for_b_and_wakes_as_the_same_process(
    engines: Callable[..., FakeModels], tmp_path: Path
) -> None:
    """The steps in order, the same pid, and no request while it sleeps."""
    fake = engines()
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        pid = (await proxy.models())["a"]["pid"]
        await proxy.chat("b")
        assert await proxy.state("a") == "asleep"
        await proxy.chat("a")
        assert (await proxy.models())["a"]["pid"] == pid

    paths = asked(fake, "a")
    assert paths.index("/sleep") < paths.index("/wake_up")
    assert fake.count("a", "start") == 1
    assert fake.count("a", "killed") == 0


async def test_p64_a_sleep_step_that_fails_stops_the_model(
    engines: Callable[..., FakeModels], tmp_path: Path
) -> None:
    """b gets its memory all the same, and a starts cold when it is wanted."""
    fake = engines("--fail /sleep")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        await proxy.chat("b")
        assert await proxy.state("a") == "stopped"
        await proxy.chat("a")

    assert fake.count("a", "start") == 2


async def test_a_wake_that_fails_starts_cold(
    engines: Callable[..., FakeModels], tmp_path: Path
) -> None:
    """The request waits a little longer, and is served; the second time too."""
    fake = engines("--fail /wake_up")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        for _ in range(2):
            assert (await proxy.post("/api/models/sleep/a"))[0] == 200
            await proxy.chat("a")

    assert fake.count("a", "start") == 3


async def test_p66_an_asleep_model_can_be_unloaded(
    engines: Callable[..., FakeModels], tmp_path: Path
) -> None:
    """It is ended without being woken."""
    fake = engines()
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        assert (await proxy.post("/api/models/sleep/a"))[0] == 200
        assert (await proxy.post("/api/models/unload/a"))[0] == 200
        assert await proxy.state("a") == "stopped"

    assert "/wake_up" not in asked(fake, "a")


async def test_p65_a_model_that_cannot_sleep_says_why(tmp_path: Path) -> None:
    """409 with the reason for this model; 404 for one that isn't there."""
    fake = FakeModels(tmp_path).add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        status, answer = await proxy.post("/api/models/sleep/a")
        assert status == 409
        assert "can't sleep" in answer["error"]["message"]
        assert (await proxy.post("/api/models/sleep/nope"))[0] == 404


async def test_a_file_that_others_have_mapped_holds_up_no_swap(tmp_path: Path) -> None:
    """As of a model that is up by another name, too: its pages stay, and aren't waited for."""
    weights = made_gguf("mapped", layers=4, embd=1024, ff=4096, heads=16, kv_heads=4)
    config = f"""
{ONE_AT_A_TIME}
sleep: {TO_MAKE_ROOM}
startPort: {free_ports(1)}
models:
  big: {{cmd: {json.dumps(" ".join(server_argv(weights)))}, ram: 400MiB}}
"""
    with weights.open("rb") as file, mmap(file.fileno(), 0, prot=PROT_READ) as ours:
        async with proxy_over(config, tmp_path) as proxy:
            await proxy.chat("big")
            await known(proxy, "big")
            assert ours.read()  # in memory, and ours as well
            await proxy.post("/api/models/sleep/big")
            await proxy.becomes("big", "asleep")

            pid = (await proxy.models())["big"]["pid"]
            assert psutil.Process(pid).memory_info().rss > weights.stat().st_size / 2
        assert "didn't come back" not in proxy.log
