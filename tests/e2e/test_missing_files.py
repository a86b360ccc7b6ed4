"""A model whose file isn't there: a quick answer, nobody leaves for it, and no reload is needed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.helpers.llama import server_argv, server_environment
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import running_proxy

pytestmark = pytest.mark.e2e


def configuration(models: Mapping[str, Path], file: Path, more: str = "") -> str:
    """Model `a`, and `b` over a `file` of its own, of whose need nothing is declared."""
    lines = ["memory: {devices: {host: 600MiB}}", "sleep: {mode: off}"]
    lines += [f"startPort: {free_ports(2)}", "models:"]
    for name, path in (("a", models["a"]), ("b", file)):
        lines += [f"  {name}:", f"    cmd: {' '.join(server_argv(path))}"]
    return "\n".join([*lines, more])


async def test_nobody_leaves_for_a_model_without_its_file(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """It is refused by the path of the file; once that is there, it loads beside the other."""
    file = tmp_path / "late.gguf"
    text = configuration(models, file)
    async with running_proxy(text, tmp_path, env=server_environment()) as proxy:
        await proxy.chat("a")
        for _ in range(3):
            status, answer = await proxy.post("/v1/completions", {"model": "b", "prompt": "x"})
            assert status == 502
            assert f"its file '{file}' isn't there" in answer["error"]["message"]
        shown = await proxy.models()
        assert shown["a"]["state"] == "ready"
        assert str(file) in shown["b"]["error"]
        shutil.copy(models["b"], file)
        await proxy.chat("b")
        shown = await proxy.models()
        assert (shown["a"]["generation"], shown["a"]["state"]) == (1, "ready")
        file.unlink()
        await proxy.chat("b")  # it is up, and stays so


async def test_a_pinned_model_comes_up_when_its_file_does(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """By itself, and till then nobody leaves for it."""
    file = tmp_path / "late.gguf"
    text = configuration(models, file, more="    pinned: true")
    async with running_proxy(text, tmp_path, env=server_environment()) as proxy:
        await proxy.chat("a")
        assert await proxy.state("b") == "stopped"
        await proxy.logs(str(file))
        shutil.copy(models["b"], file)
        await proxy.becomes("b", "ready")
        assert (await proxy.models())["a"]["generation"] == 1


async def test_nobody_leaves_for_a_model_whose_file_is_still_being_fetched(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """It is refused by where the file ends, and loads once that is whole."""
    file, whole = tmp_path / "half.gguf", models["b"].read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    text = configuration(models, file)
    async with running_proxy(text, tmp_path, env=server_environment()) as proxy:
        await proxy.chat("a")
        status, answer = await proxy.post("/v1/completions", {"model": "b", "prompt": "x"})
        assert status == 502
        assert f"its file '{file}' is cut off" in answer["error"]["message"]
        assert (await proxy.models())["a"]["state"] == "ready"
        with file.open("ab") as rest:
            rest.write(whole[len(whole) // 2 :])
        await proxy.chat("b")
