"""Real llama-servers on the CPU, none of which says what it needs: what fits is up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.helpers.llama import made_gguf, server_argv, server_environment
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GIB = 1024**3


@pytest.fixture(scope="module")
def weights() -> Path:
    """A model that holds 1.3 GiB of RAM."""
    return made_gguf("books", layers=11, embd=2048, ff=8192, heads=16, kv_heads=4)


def named(weights: Path, folder: Path) -> dict[str, Path]:
    """The same weights under three names, as three models: they are on the disk once."""
    paths = {name: folder / f"{name}.gguf" for name in "abc"}
    for path in paths.values():
        path.symlink_to(weights)
    return paths


def hollow_gguf(path: Path, *, layers: int) -> Path:
    """Write the header of a model with half a GiB of weights a layer, and nothing on the disk."""
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_context_length(4096)
    out.add_embedding_length(4096)
    out.add_block_count(layers)
    out.add_feed_forward_length(65536)
    out.add_head_count(32)
    out.add_layer_norm_rms_eps(1e-5)
    for i in range(layers):
        shape, size = (65536, 4096), GIB // 2
        out.add_tensor_info(f"blk.{i}.ffn_up.weight", shape, np.dtype(np.float16), size)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_ti_data_to_file()
    out.close()
    os.truncate(path, path.stat().st_size + layers * GIB // 2 + GIB // 1024)
    return path


def configuration(paths: Mapping[str, Path], *head: str) -> str:
    """Models that are stopped to make room, and say nothing of their memory."""
    lines = [*head, "sleep: {mode: off}", f"startPort: {free_ports(len(paths))}", "models:"]
    for name, path in paths.items():
        lines += [f"  {name}:", f"    cmd: {' '.join(server_argv(path))}"]
    return "\n".join(lines) + "\n"


async def up(proxy: ProxyProcess) -> list[str]:
    """The models that are ready."""
    shown = await proxy.models()
    return [name for name, model in shown.items() if model["state"] == "ready"]


async def learned(proxy: ProxyProcess, *names: str) -> dict[str, Any]:
    """Return the models, once `names` were learned from."""

    async def known() -> bool:
        shown = await proxy.models()
        return all(shown[name]["footprint"]["source"] == "learned" for name in names)

    await eventually(known, what=f"{names} are learned from")
    return await proxy.models()


async def test_two_of_three_fit_and_what_was_learned_survives_a_restart(
    weights: Path, tmp_path: Path
) -> None:
    """3 GiB for models of 1.3: the third evicts exactly one."""
    config = configuration(named(weights, tmp_path), "memory: {devices: {host: 3GiB}}")
    async with running_proxy(config, tmp_path, env=server_environment()) as proxy:
        for name in "ab":
            await proxy.chat(name)
            await learned(proxy, name)
        assert await up(proxy) == ["a", "b"]
        await proxy.chat("c")
        stayed = await up(proxy)
        assert stayed in (["a", "c"], ["b", "c"])
        shown = await learned(proxy, *"abc")
        assert [shown[name]["generation"] for name in "abc"] == [1, 1, 1]
        for name in stayed:
            assert 1.25 < shown[name]["bytes"]["host"] / GIB < 1.45
            assert shown[name]["need_bytes"]["host"] >= shown[name]["bytes"]["host"] - GIB // 32
        needs = {name: shown[name]["need_bytes"] for name in "abc"}

    async with running_proxy(config, tmp_path, env=server_environment()) as proxy:
        shown = await proxy.models()
        assert {name: shown[name]["need_bytes"] for name in "abc"} == needs
        assert shown["a"]["footprint"]["source"] == "learned"
        await proxy.chat("a")
        await proxy.chat("b")
        assert await up(proxy) == ["a", "b"]


async def test_what_can_never_fit_is_refused_at_once(weights: Path, tmp_path: Path) -> None:
    """The weights alone are more than there is: a clear 503, and nobody has to leave for it."""
    paths = {"a": weights, "huge": hollow_gguf(tmp_path / "huge.gguf", layers=8)}
    config = configuration(paths, "memory: {devices: {host: 3GiB}}")
    async with running_proxy(config, tmp_path, env=server_environment()) as proxy:
        await proxy.chat("a")
        status, answer = await proxy.post("/v1/chat/completions", {"model": "huge", "messages": []})
        shown = await proxy.models()
    assert status == 503
    assert "'huge' needs 4" in answer["error"]["message"]
    assert "of host, where 3 GiB of 3 GiB are available" in answer["error"]["message"]
    assert (shown["a"]["state"], shown["huge"]["generation"]) == ("ready", 0)


async def test_without_a_word_on_memory_models_stay_up_together(
    weights: Path, tmp_path: Path
) -> None:
    """What the machine has is measured, and its books are shown."""
    paths = named(weights, tmp_path)
    del paths["c"]
    config = configuration(paths)
    async with running_proxy(config, tmp_path, env=server_environment()) as proxy:
        for name in paths:
            await proxy.chat(name)
        await learned(proxy, *paths)
        assert await up(proxy) == ["a", "b"]
        _, answer = await proxy.get("/api/devices?pss")
    host = next(device for device in answer["devices"] if device["device"] == "host")
    assert host["capacity_bytes"] == host["total_bytes"] - GIB
    assert {"a", "b"} == set(host["models"])
    assert answer["pss_bytes"]["a"] < host["models"]["a"], "they share the pages of one file"
