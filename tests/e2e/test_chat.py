"""`llmsnap chat` at a real terminal, in front of a real proxy with real llama-servers."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pexpect
import psutil
import pytest

from tests.helpers.fake_models import FakeModels
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

PROMPT = ">>> "
LIMIT_S = 60


class Person:
    """Somebody at a terminal; what is waited for must come."""

    def __init__(self, proxy: ProxyProcess, folder: Path, *argv: str) -> None:
        self._child = pexpect.spawn(
            sys.executable,
            ["-m", "llmsnap", "chat", *argv, "--url", proxy.url, "--state-dir", str(folder)],
            env={**os.environ, "TERM": "xterm"},
            encoding="utf-8",
            codec_errors="replace",
            timeout=LIMIT_S,
            dimensions=(40, 500),
        )

    async def sees(self, text: str) -> str:
        """Wait for a text; return what was shown before it, since the last one."""
        await asyncio.to_thread(self._child.expect_exact, text)
        return str(self._child.before)

    async def says(self, line: str) -> str:
        """Type a line once it is asked for; return all that is shown until the next one is."""
        self._child.sendline(line)
        return await self.sees(PROMPT)

    async def begins(self, line: str, until: str) -> None:
        """Type a line, and wait until something is shown."""
        self._child.sendline(line)
        await self.sees(until)

    async def interrupts(self) -> None:
        """Type Ctrl-C, once the chat waits for somebody: its prompt is seen a moment before that.

        What comes in that moment is noticed by Python's `input` with the next key only.
        """
        chat = psutil.Process(self._child.pid)
        await eventually(lambda: chat.status() == psutil.STATUS_SLEEPING)
        self._child.sendintr()

    async def leaves(self) -> int | None:
        """Type Ctrl-D; return the exit code."""
        self._child.sendeof()
        await asyncio.to_thread(self._child.expect, pexpect.EOF)
        await asyncio.to_thread(self._child.close)
        return self._child.exitstatus


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[ProxyProcess]:
    """Models, and room for one; `endless` writes until it is stopped, `slow` never gets up.

    A llama-server stops when its context is full, which isn't long.
    """
    endless = FakeModels(tmp_path).command("endless", "--gap 0.02 --chunks 1000000")
    command = json.dumps(" ".join(server_argv(tiny_gguf())))
    short = "filters: {setParams: {max_tokens: 8, temperature: 0}}"
    config = f"""
memory: {{devices: {{host: 1GiB}}}}
schedule: {{hold: 0}}
sleep: {{mode: 'off'}}
startPort: {free_ports(4)}
models:
  a: {{cmd: {command}, ram: 800MiB, aliases: [first], {short}}}
  b: {{cmd: {command}, ram: 800MiB, {short}}}
  endless: {{cmd: {json.dumps(endless)}, ram: 800MiB}}
  slow: {{cmd: sleep 100, proxy: "http://127.0.0.1:1", ram: 800MiB, unlisted: true}}
"""
    async with running_proxy(config, tmp_path, env=server_environment()) as proxy:
        yield proxy


def kept(folder: Path) -> list[Path]:
    """The files of all conversations."""
    return sorted((folder / "chats").glob("*.json"))


async def test_a_conversation_goes_on_with_another_model(
    proxy: ProxyProcess, tmp_path: Path
) -> None:
    """The line under the answer tells of the swap, of the cache, and of the times."""
    person = Person(proxy, tmp_path, "a")
    await person.sees(PROMPT)

    first = await person.says("hello")
    again = await person.says("and again")
    assert "goes on" in await person.says("/model b")
    other = await person.says("and you?")

    assert "swap " in first
    assert "start " in first
    assert "first token " in first
    assert "tokens/s" in first
    assert "awake · " in again
    assert "prompt tokens cached" in again
    assert "b is stopped" in other  # while it came
    assert "evict " in other
    assert await person.leaves() == 0
    (path,) = kept(tmp_path)
    conversation = json.loads(path.read_text())
    assert conversation["model"] == "b"
    assert [message["role"] for message in conversation["messages"]] == ["user", "assistant"] * 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_ctrl_c_stops_the_answer_and_not_the_chat(
    proxy: ProxyProcess, tmp_path: Path
) -> None:
    """What came stays part of the conversation; the model's server is free at once."""
    person = Person(proxy, tmp_path, "endless")
    await person.sees(PROMPT)
    await person.begins("write", "…")
    await person.sees("\x1b[K")  # the note goes when text comes
    await person.interrupts()

    assert "stopped" in await person.sees(PROMPT)
    await person.says("/model a")
    assert "swap" in await person.says("hi")
    assert await person.leaves() == 0
    (path,) = kept(tmp_path)
    assert len(json.loads(path.read_text())["messages"]) == 4


async def test_ctrl_c_ends_a_wait_and_a_line(proxy: ProxyProcess, tmp_path: Path) -> None:
    """A question that got no answer can be asked again; at the prompt nothing is lost by it."""
    person = Person(proxy, tmp_path, "slow")
    await person.sees(PROMPT)
    await person.begins("write", "…")
    await proxy.becomes("slow", "starting")
    await person.interrupts()
    assert "/retry asks again" in await person.sees(PROMPT)
    await person.interrupts()
    assert "Ctrl-D leaves" in await person.sees(PROMPT)
    await proxy.post("/api/models/unload/slow")
    await person.says("/model a")

    assert "tokens/s" in await person.says("/retry")
    assert await person.leaves() == 0


async def test_retry_save_load_and_continue(proxy: ProxyProcess, tmp_path: Path) -> None:
    """The same question gets the same answer at temperature 0; a kept conversation goes on."""
    person = Person(proxy, tmp_path, "a", "--system", "Be brief.")
    await person.sees(PROMPT)
    await person.says("hello")
    await person.says("/retry")
    assert "kept as mine" in await person.says("/save mine")
    assert "1 question" in await person.says("/load mine")
    assert await person.leaves() == 0

    later = Person(proxy, tmp_path, "--continue")
    assert "mine: 1 question, a" in await later.sees(PROMPT)
    await later.says("more")
    assert await later.leaves() == 0

    conversation = json.loads((tmp_path / "chats" / "mine.json").read_text())
    roles = [message["role"] for message in conversation["messages"]]
    assert roles == ["system", *["user", "assistant"] * 2]


async def test_mistakes_are_told_and_the_chat_goes_on(proxy: ProxyProcess, tmp_path: Path) -> None:
    """Of commands, of models, of files, of names."""
    person = Person(proxy, tmp_path, "first")
    await person.sees(PROMPT)

    assert "'/nonsense'" in await person.says("/nonsense")
    assert "there are: a, b, endless, first, slow" in await person.says("/model c")
    assert "can't be read" in await person.says("/file /nowhere/at/all")
    assert "nothing was asked yet" in await person.says("/retry")
    assert "'no such'" in await person.says("/load no such")
    assert "/retry" in await person.says("/help")
    assert "a · " in await person.says("hello")  # by its own name
    assert await person.leaves() == 0


async def piped(proxy: ProxyProcess, folder: Path, text: str, *argv: str) -> tuple[int, str, str]:
    """Pipe a text in; return the exit code and both outputs."""

    places = ("--url", proxy.url, "--state-dir", str(folder))

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "llmsnap", "chat", *argv, *places],
            input=text,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )

    done = await asyncio.to_thread(run)
    return done.returncode, done.stdout, done.stderr


async def test_in_a_pipe_only_the_answer_comes_out(proxy: ProxyProcess, tmp_path: Path) -> None:
    """With the text of files before the question; nothing is kept."""
    enclosed = tmp_path / "notes.txt"
    enclosed.write_text("remember the milk")
    expected = await proxy.chat("a", "notes.txt:\n\n```\nremember the milk\n```\n\nhi")

    code, out, err = await piped(proxy, tmp_path, "hi\n", "a", "--file", str(enclosed))

    assert (code, err) == (0, "")
    assert out == expected["choices"][0]["message"]["content"] + "\n"
    assert kept(tmp_path) == []


async def test_in_a_pipe_faults_have_exit_code_1(proxy: ProxyProcess, tmp_path: Path) -> None:
    """An unknown model, which models there are without a name, and nothing to ask."""
    assert await piped(proxy, tmp_path, "hi", "c") == (
        1,
        "",
        "llmsnap: no model is called 'c'; there are: a, b, endless, first, slow\n",
    )
    assert await piped(proxy, tmp_path, "hi") == (
        1,
        "",
        "llmsnap: which model? There are: a, b, endless, first, slow\n",
    )
    code, out, err = await piped(proxy, tmp_path, "", "a")
    assert (code, out) == (1, "")
    assert "nothing was piped in" in err
