"""A model whose port a stranger has: a quick answer, nobody leaves, and no reload is needed."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.helpers.llama import server_argv, server_environment
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy

pytestmark = pytest.mark.e2e


def configuration(models: Mapping[str, Path], port: int, names: str = "ab") -> str:
    """Models at `port` and the next ones, of which all but one fit."""
    lines = [f"memory: {{devices: {{host: {400 * len(names) - 200}MiB}}}}", "sleep: {mode: off}"]
    lines += [f"startPort: {port}", "models:"]
    for name in names:
        command = " ".join(server_argv(models[name]))
        lines += [f"  {name}:", f"    cmd: {command}", "    ram: 400MiB"]
    return "\n".join(lines)


async def starts(proxy: ProxyProcess, model: str) -> list[str]:
    """How the starts of `model` ended."""
    _, page = await proxy.get(f"/api/swaps?order=asc&model={model}")
    return [row["result"] for row in page["data"]]


async def test_nobody_leaves_for_a_model_whose_port_is_taken(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """It is refused by the stranger's pid; once that has left, the model loads."""
    port = free_ports(2)
    text = configuration(models, port)
    async with running_proxy(text, tmp_path, env=server_environment()) as proxy:
        with socket.create_server(("127.0.0.1", port + 1)):
            await proxy.chat("a")
            for _ in range(3):
                status, answer = await proxy.post("/v1/completions", {"model": "b", "prompt": "x"})
                assert status == 502
                assert f"port {port + 1} is taken by pid {os.getpid()} " in str(answer["error"])
            shown = await proxy.models()
            assert (shown["a"]["state"], shown["a"]["generation"]) == ("ready", 1)
            assert "is taken by" in shown["b"]["error"]
        await proxy.chat("b")
        assert await proxy.state("a") == "stopped"


async def test_a_pinned_model_is_not_tried_again_and_again_while_its_port_is_taken(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Else whoever is up in its place would be put out each time; when it is free, it loads."""
    port = free_ports(3)
    text = configuration(models, port, "abc") + "\n    pinned: true"
    with socket.create_server(("127.0.0.1", port + 2)) as stranger:
        async with running_proxy(text, tmp_path, env=server_environment()) as proxy:
            await proxy.becomes("c", "failed")
            await proxy.chat("a")
            await proxy.chat("b")
            _, answer = await proxy.post("/v1/completions", {"model": "c", "prompt": "x"})
            assert "is taken by" in str(answer["error"])
            await asyncio.sleep(5)  # it would have been tried again after two
            assert {await proxy.state(model) for model in "ab"} == {"ready"}
            tried = await starts(proxy, "c")
            assert tried in (["failed"], ["failed", "failed"])
            stranger.close()
            await proxy.becomes("c", "ready")


async def test_two_models_may_share_a_port(models: Mapping[str, Path], tmp_path: Path) -> None:
    """Each makes room for the other: what has the port then is none of a stranger's."""
    port = free_ports(2)
    text = configuration(models, port).replace("${PORT}", str(port))
    text += f"\n    proxy: http://127.0.0.1:{port}"
    text = text.replace("  b:", f"    proxy: http://127.0.0.1:{port}\n  b:")
    async with running_proxy(text, tmp_path, env=server_environment()) as proxy:
        for name in ("a", "b", "a"):
            await proxy.chat(name)
