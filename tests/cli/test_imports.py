"""`llmsnap import`, and serving what was never configured."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from llmsnap.config.loader import load
from tests.cli.conftest import Run
from tests.config.test_ollama_store import blob, manifest
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import running_proxy
from tests.helpers.waiting import eventually


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one model in it."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "tiny.gguf").symlink_to(tiny_gguf())
    return folder


def test_the_file_can_be_used_as_it_is(llmsnap: Run, models: Path, tmp_path: Path) -> None:
    """And isn't written over unasked."""
    path = tmp_path / "config.yaml"

    assert llmsnap("import", str(models), "-o", str(path)).code == 0
    assert list(load(path).config.models) == ["tiny"]
    again = llmsnap("import", str(models), "-o", str(path))
    assert (again.code, "--force" in again.err) == (78, True)
    assert llmsnap("import", str(models), "-o", str(path), "--force").code == 0


def test_without_a_file_it_is_printed(llmsnap: Run, models: Path) -> None:
    """With comments."""
    outcome = llmsnap("import", str(models))

    assert outcome.code == 0
    assert "  tiny:\n" in outcome.out
    assert outcome.out.startswith("# The models in")


def test_ollamas_store_is_found(
    llmsnap: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its own variable says."""
    manifest(tmp_path, "registry.ollama.ai/library/a/7b", blob(tmp_path, "model", b"GGUF"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))

    assert '"a:7b":' in llmsnap("import").out
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "none"))
    assert "name a SOURCE" in llmsnap("import").err


def test_what_holds_no_models_is_refused(llmsnap: Run, tmp_path: Path) -> None:
    """One line, and 78."""
    (tmp_path / "x.txt").touch()

    for source in (tmp_path / "x.txt", tmp_path):
        outcome = llmsnap("import", str(source))
        assert (outcome.code, len(outcome.err.splitlines())) == (78, 1)


@pytest.mark.e2e
async def test_a_folder_and_a_preset_are_served_without_any_yaml(
    models: Path, tmp_path: Path
) -> None:
    """By real llama-servers."""
    preset = tmp_path / "p.ini"
    preset.write_text(f"[*]\nnp = 1\nc = 2048\n[two]\nmodel = {tiny_gguf(1)}\nalias = ii\n")
    server = server_argv(Path("x"))[0]
    env = {**server_environment(), "LLAMA_SERVER": f"{server} --threads 1 --no-warmup"}
    args = ["--models-dir", str(models), "--models-preset", str(preset)]
    config = f"startPort: {free_ports(3)}"
    async with running_proxy(config, tmp_path, args=args, env={**os.environ, **env}) as proxy:
        assert set(await proxy.models()) == {"tiny", "two"}
        assert (await proxy.chat("tiny"))["choices"]
        assert (await proxy.chat("ii"))["choices"]

        (models / "added.gguf").symlink_to(tiny_gguf(2))
        proxy.process.send_signal(signal.SIGHUP)

        async def is_there() -> bool:
            return set(await proxy.models()) == {"tiny", "two", "added"}

        await eventually(is_there, timeout_s=60)
        assert (await proxy.chat("added"))["choices"]
