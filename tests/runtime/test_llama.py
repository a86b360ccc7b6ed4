"""The runtime over a real llama-server with a real, tiny model."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import aiohttp
import psutil
import pytest

from llmsnap.core.lifecycle import State
from llmsnap.runtime.proctable import ON_LINUX
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_port
from tests.helpers.processes import lives
from tests.helpers.waiting import eventually
from tests.runtime.rig import PROXY_LIKE, Rig, loop_name, plan


async def test_a_real_server_comes_up_answers_and_ends(rig: Rig) -> None:
    """Ready by its own /health, a completion through the lease, gone after the unload."""
    port = free_port()
    argv = server_argv(tiny_gguf(0), str(port))
    supervisor = rig.supervise(plan(argv=argv, env=server_environment(), port=port))
    async with supervisor.lease("a") as lease, aiohttp.ClientSession() as client:
        assert supervisor.view("a").state is State.READY
        url = f"http://{lease.upstream.host}:{lease.upstream.port}/completion"
        async with client.post(url, json={"prompt": "hello", "n_predict": 4}) as answer:
            assert (await answer.json())["timings"]["predicted_n"] == 4
    pid = supervisor.pid("a")
    assert pid is not None
    await supervisor.unload("a")
    assert not psutil.pid_exists(pid)
    assert b"listening on" in rig.logs.model("a").history()


async def test_u61_a_real_server_dies_with_its_parent(tmp_path: Path) -> None:
    """`kill -9` of the parent leaves no llama-server behind."""
    if not ON_LINUX:
        pytest.skip("only Linux has PR_SET_PDEATHSIG")
    argv = [*PROXY_LIKE, loop_name(), str(tmp_path), *server_argv(tiny_gguf(0), str(free_port()))]
    with subprocess.Popen(  # noqa: ASYNC220 - the test has nothing else to do
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **server_environment()}
    ) as parent:
        assert parent.stdout is not None
        lines: list[str] = []
        while not any("listening on" in line for line in lines):
            lines.append(await asyncio.to_thread(parent.stdout.readline))
            assert lines[-1], "it ended before it listened"
        parent.kill()
        (pid,) = (int(line.split()[1]) for line in lines if line.startswith("child "))
        await eventually(lambda: not lives(pid))
