"""Conversations that outlive their processes, with real llama-servers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.e2e.conftest import ONE_AT_A_TIME, Configure, direct_server, text_of
from tests.helpers.llama import server_argv
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

LONG = "abc def " * 190
"""Some 1,500 tokens."""
SAVED = "tokens is saved"

Talk = list[dict[str, Any]]


async def say(
    proxy: ProxyProcess, talk: Talk, text: str, model: str = "a", **more: Any
) -> dict[str, Any]:
    """Go on with a conversation; returns the answer's timings, with its text beside."""
    talk.append({"role": "user", "content": text})
    answer = await proxy.chat(model, messages=talk, **more)
    reply = str(answer["choices"][0]["message"]["content"])
    talk.append({"role": "assistant", "content": reply})
    return {**answer["timings"], "text": reply}


@pytest.fixture(scope="session")
def undisturbed(models: Mapping[str, Path]) -> dict[str, Any]:
    """What the second answer of a conversation is when its process lives on."""
    return asyncio.run(answers_of_one_alone(models, [LONG, "go on"]))[-1]


async def answers_of_one_alone(
    models: Mapping[str, Path], texts: Sequence[str]
) -> list[dict[str, Any]]:
    """Have a conversation without a proxy; returns the timings of each answer and its text."""
    answers = []
    with direct_server(models["a"]) as url:
        await text_of(url, "up?")
        async with aiohttp.ClientSession(url) as session:
            talk: Talk = []
            for text in texts:
                talk.append({"role": "user", "content": text})
                body = {"messages": talk, "temperature": 0, "max_tokens": 16}
                async with session.post("/v1/chat/completions", json=body) as answer:
                    said = await answer.json()
                talk.append(said["choices"][0]["message"])
                answers.append({**said["timings"], "text": talk[-1]["content"]})
    return answers


def check_restored(first: dict[str, Any], found: dict[str, Any], expected: dict[str, Any]) -> None:
    """What is asked next is all that is read, and the answer is what it would have been."""
    held = first["prompt_n"] + first["cache_n"] + first["predicted_n"] - 1
    assert found["cache_n"] >= 0.95 * held
    assert found["prompt_n"] <= expected["prompt_n"] + 1
    assert found["text"] == expected["text"]


async def logged(proxy: ProxyProcess, text: str, *, times: int = 1) -> None:
    """Wait until the proxy says `text`."""
    await eventually(lambda: proxy.log.count(text) >= times, timeout_s=60, what=text)


async def test_a_conversation_survives_a_stop(
    configure: Configure, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """It is saved before its process ends, and back before the next answer."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk: Talk = []
        first = await say(proxy, talk, LONG)
        await proxy.post("/api/models/unload")
        check_restored(first, await say(proxy, talk, "go on"), undisturbed)

        folder = proxy.state_dir / "sessions"
        files = list(folder.glob("*.kv"))
        assert folder.stat().st_mode & 0o777 == 0o700
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600]


async def test_a_conversation_survives_a_swap(
    configure: Configure, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """Another model takes the room in between."""
    async with running_proxy(configure(names="ab"), tmp_path) as proxy:
        talk: Talk = []
        first = await say(proxy, talk, LONG)
        await proxy.chat("b")
        assert await proxy.state("a") == "stopped"
        check_restored(first, await say(proxy, talk, "go on"), undisturbed)


async def test_a_conversation_survives_the_death_of_its_process(
    configure: Configure, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """It was saved when its model was idle."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk: Talk = []
        first = await say(proxy, talk, LONG)
        await logged(proxy, SAVED)
        pid = (await proxy.models())["a"]["pid"]
        psutil.Process(pid).kill()
        await proxy.becomes("a", "stopped")
        check_restored(first, await say(proxy, talk, "go on"), undisturbed)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
async def test_a_conversation_survives_the_end_of_the_proxy(
    models: Mapping[str, Path],
    tmp_path: Path,
    undisturbed: dict[str, Any],
    signum: signal.Signals,
) -> None:
    """Whether it was told to end or killed; the model has another port afterwards."""

    def config() -> str:
        command = " ".join(server_argv(models["a"]))
        return f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"

    talk: Talk = []
    async with running_proxy(config(), tmp_path) as proxy:
        first = await say(proxy, talk, LONG)
        if signum is signal.SIGKILL:
            await logged(proxy, SAVED)
        await proxy.stop(signum)
    async with running_proxy(config(), tmp_path) as proxy:
        check_restored(first, await say(proxy, talk, "go on"), undisturbed)


@pytest.mark.parametrize("np", [1, 2])
async def test_a_conversation_survives_another_port(
    models: Mapping[str, Path], tmp_path: Path, np: int
) -> None:
    """The proxy is started anew, and its configuration gives the model another one."""
    command = " ".join(server_argv(models["a"], np=np))
    talk: Talk = []
    held = 0
    for text in (LONG, "go on"):
        config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
        async with running_proxy(config, tmp_path) as proxy:
            found = await say(proxy, talk, text)
            assert found["cache_n"] >= 0.95 * held
            held = found["cache_n"] + found["prompt_n"] + found["predicted_n"] - 1


async def test_another_number_of_caches_is_found_out_before_the_engine_is_asked(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """With `-np 2` each slot has one of its own, and files of `-np 1` are refused there."""
    talk: Talk = []
    for np, more, is_back in ((1, [], False), (2, [], False), (2, ["-kvu"], True)):
        command = " ".join(server_argv(models["a"], np=np, extra=more))
        config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
        async with running_proxy(config, tmp_path) as proxy:
            found = await say(proxy, talk, "go on" if talk else LONG)
            assert (found["cache_n"] > 1500) is is_back
            assert "restore failed" not in proxy.log


async def test_conversations_survive_with_two_slots(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Both of two conversations come back, each into a slot of its own."""
    command = " ".join(server_argv(models["a"], np=2))
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
    async with running_proxy(config, tmp_path) as proxy:
        talks: list[Talk] = [[], []]
        first = [
            await say(proxy, talk, start * 90)
            for talk, start in zip(talks, ("abc def ", "uvw xyz "), strict=True)
        ]
        await proxy.post("/api/models/unload")
        for talk, before in zip(talks, first, strict=True):
            found = await say(proxy, talk, "go on")
            assert found["cache_n"] >= 0.95 * (before["prompt_n"] + before["predicted_n"] - 1)


async def test_e08_what_doesnt_fit_into_a_common_cache_takes_anothers_place(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Without `-np` all slots share the context, and a restore for which there is no room fails.

    The one that has to go is saved first, and no process is restarted.
    """
    argv = server_argv(models["a"])
    del argv[(place := argv.index("-np")) : place + 2]
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{' '.join(argv)}'}}}}"
    async with running_proxy(config, tmp_path) as proxy:
        talks: list[Talk] = [[], []]
        held = [0, 0]
        for which, start in enumerate(("abc def ", "uvw xyz ")):
            first = await say(proxy, talks[which], start * 300)  # of 4,096 tokens 2,400
            held[which] = first["prompt_n"] + first["predicted_n"] - 1
            await proxy.post("/api/models/unload")
        for which in (0, 1, 0):
            found = await say(proxy, talks[which], "go on")
            assert found["cache_n"] >= 0.95 * held[which]
        assert (await proxy.models())["a"]["generation"] == 3
        assert "restore failed" not in proxy.log


async def test_two_conversations_alternate_on_one_slot(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Five times, though the server itself keeps nothing of them: what goes is saved first."""
    command = " ".join(server_argv(models["a"], extra=["--cache-ram", "0"]))
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{command}'}}}}"
    async with running_proxy(config, tmp_path) as proxy:
        talks: list[Talk] = [[], []]
        held = [0, 0]
        texts: list[list[str]] = [[], []]
        asked = [[start * 90, *["go on"] * 4] for start in ("abc def ", "uvw xyz ")]
        for turn in range(5):
            for which in (0, 1):
                found = await say(proxy, talks[which], asked[which][turn])
                assert found["cache_n"] >= 0.95 * held[which], (turn, which, found)
                held[which] = found["cache_n"] + found["prompt_n"] + found["predicted_n"] - 1
                texts[which].append(found["text"])
        assert len([*(proxy.state_dir / "sessions").glob("*.kv")]) == 2  # one a conversation
    for which in (0, 1):
        alone = await answers_of_one_alone(models, asked[which])
        assert texts[which] == [answer["text"] for answer in alone]


async def test_what_is_new_after_a_restore_is_saved_again(
    configure: Configure, tmp_path: Path
) -> None:
    """Over three processes, with one file that takes the place of the one before."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk: Talk = []
        held = 0
        for text in (LONG, "go on", "and on"):
            found = await say(proxy, talk, text)
            assert found["cache_n"] >= 0.95 * held
            held = found["cache_n"] + found["prompt_n"]
            await proxy.post("/api/models/unload")
            assert len([*(proxy.state_dir / "sessions").glob("*.kv")]) == 1


async def test_turned_off_it_changes_nothing(configure: Configure, tmp_path: Path) -> None:
    """The command has no option, and no folder is made."""
    config = configure(f"{ONE_AT_A_TIME}\nsessions: {{mode: off}}", names="a")
    async with running_proxy(config, tmp_path) as proxy:
        await proxy.chat("a")
        _, running = await proxy.get("/running")
        assert "--slot-save-path" not in running["running"][0]["cmd"]
        assert not (proxy.state_dir / "sessions").exists()


async def test_running_shows_the_command_with_the_option(
    configure: Configure, tmp_path: Path
) -> None:
    """As it was started."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        await proxy.chat("a")
        _, running = await proxy.get("/running")
        assert f"--slot-save-path {proxy.state_dir}/sessions/" in running["running"][0]["cmd"]


async def test_e06_what_is_cleared_for_another_conversation_is_saved_first(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Without `-np` idle slots are emptied when another one is used, into RAM that ends with it.

    The two take turns without a pause, in which a snapshot might be made. What is less than
    `minTokens` isn't saved again.
    """
    argv = server_argv(models["a"])
    del argv[(place := argv.index("-np")) : place + 2]
    config = f"startPort: {free_ports(1)}\nmodels: {{a: {{cmd: '{' '.join(argv)}'}}}}"
    async with running_proxy(config, tmp_path) as proxy:
        talks: list[Talk] = [[], []]
        held = [0, 0]
        for text in ("", "go on"):
            for which, start in enumerate(("abc def ", "uvw xyz ")):
                found = await say(proxy, talks[which], text or start * 90)
                held[which] = held[which] or found["prompt_n"] + found["predicted_n"] - 1
        await proxy.post("/api/models/unload")
        await proxy.becomes("a", "stopped")
        for which in (0, 1):
            found = await say(proxy, talks[which], "and on")
            assert found["cache_n"] >= 0.95 * held[which]


async def test_only_a_restore_is_told_as_one(configure: Configure, tmp_path: Path) -> None:
    """Not a look at slots, nor a save of what another conversation displaces."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk: Talk = []
        await say(proxy, talk, LONG)
        await say(proxy, [], "uvw xyz " * 60)
        assert len([*(proxy.state_dir / "sessions").glob("*.kv")]) == 1
        await say(proxy, talk, "go on")

        async def phases() -> list[bool]:
            _, answer = await proxy.get("/api/activity")
            return ["restore" in row["phases"] for row in reversed(answer["data"])]

        await eventually(lambda: _is(phases, [False, False, True]), what="the phases are known")


async def _is(found: Callable[[], Awaitable[object]], expected: object) -> bool:
    return await found() == expected
