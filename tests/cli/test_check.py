"""`llmsnap check`: a table for people, a document for programs, an exit code for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.memory.gguf_files import blocks, llama, write_gguf

TEXT = """
models:
  qwen:
    cmd: llama-server --port ${PORT} -m q.gguf --api-key s3cretive
    aliases: [big]
    bogus: 1
  embed:
    cmd: llama-server --port ${PORT} -m e.gguf
    pinned: true
hooks: {on_startup: {preload: [big]}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A configuration with one key that nobody knows."""
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    return path


def test_it_shows_a_table_and_says_that_all_is_well(llmsnap: Run, path: Path) -> None:
    """Warnings go to standard error, secrets nowhere."""
    outcome = llmsnap("check", "--config", str(path))

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0].split()[:2] == ["MODEL", "ALIASES"]
    assert lines[1].startswith("embed (pinned) ")
    assert lines[2].split()[:2] == ["qwen", "big"]
    assert lines[-1] == f"{path} is fine: 2 models"
    assert outcome.err.startswith(f"warning: {path}:6: models.qwen.bogus: ")
    assert "s3cretive" not in outcome.out


def test_in_json_it_is_the_resolved_configuration(llmsnap: Run, path: Path) -> None:
    """Under the file's own names, after macros and defaults; Go's spelling will do."""
    outcome = llmsnap("check", f"-config={path}", "--json")

    document = outcome.json
    assert document["models"]["qwen"]["argv"][:3] == ["llama-server", "--port", "5801"]
    assert document["preload"] == ["qwen"]
    assert "s3cretive" not in outcome.out


def test_the_configuration_is_looked_for(
    llmsnap: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here first, then below $XDG_CONFIG_HOME."""
    monkeypatch.chdir(path.parent)
    here = llmsnap("check")
    home = path.parent / "home"
    (home / "llmsnap").mkdir(parents=True)
    (home / "llmsnap" / "config.yaml").write_text("models: {}\n")
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    there = llmsnap("check")

    assert here.out.splitlines()[-1] == "config.yaml is fine: 2 models"
    assert there.out.splitlines()[-1] == f"{home}/llmsnap/config.yaml is fine: 0 models"


def test_a_file_that_cant_be_used_ends_with_78(llmsnap: Run, tmp_path: Path) -> None:
    """On standard error alone, be JSON wanted or not."""
    for argv in (("check",), ("check", "--json")):
        outcome = llmsnap(*argv, "--config", str(tmp_path / "missing.yaml"))

        assert (outcome.code, outcome.out) == (78, "")
        assert "missing.yaml" in outcome.err


def test_a_folder_of_configurations_is_read_with_the_one_file(llmsnap: Run, path: Path) -> None:
    """Their models are in one list, and what was read is named."""
    folder = path.parent / "more"
    folder.mkdir()
    (folder / "b.yaml").write_text("models: {third: {cmd: 'z ${PORT}'}}")
    both = llmsnap("check", "-config", str(path), "-config-dir", str(folder))
    alone = llmsnap("check", "-config-dir", str(folder))

    assert (both.code, alone.code) == (0, 0)
    assert both.out.splitlines()[-1] == f"{path}, {folder}/b.yaml is fine: 3 models"
    assert alone.out.splitlines()[-1] == f"{folder}/b.yaml is fine: 1 model"


def test_c72f_a_file_in_the_folder_too_is_refused(llmsnap: Run, path: Path) -> None:
    """It would be merged with itself."""
    outcome = llmsnap("check", "-config", str(path), "-config-dir", str(path.parent))

    assert outcome.code == 78
    assert "remove it from one of them" in outcome.err


def test_the_schema_needs_no_configuration(llmsnap: Run) -> None:
    """It is what editors read."""
    outcome = llmsnap("check", "--schema")

    assert json.loads(outcome.out)["properties"]["models"]


def test_it_estimates_what_models_will_need(llmsnap: Run, tmp_path: Path) -> None:
    """Apart from what is declared, with what it is made of, and with advice."""
    gguf = write_gguf(tmp_path / "m.gguf", llama(), blocks(4))
    path = tmp_path / "config.yaml"
    path.write_text(
        f"memory: {{devices: {{host: 1GiB}}}}\n"
        f"models:\n"
        f"  told: {{cmd: 'llama-server --port ${{PORT}} -m {gguf} -c 512 --cache-ram 0'}}\n"
        f"  open: {{cmd: 'llama-server --port ${{PORT}} -m {gguf}', ram: 1KiB}}\n"
        f"  gone: {{cmd: 'llama-server --port ${{PORT}} -m nowhere.gguf'}}\n"
    )

    document = llmsnap("check", "--config", str(path), "--json").json
    table = llmsnap("check", "--config", str(path)).out

    estimate = document["models"]["told"]["estimate"]
    parts = dict(estimate["devices"]["host"])
    assert parts.pop("total") == sum(parts.values())
    assert parts["kv"] == 512 * 4 * 2 * 128 * 2
    assert (estimate["mayGrowBy"], estimate["fittedWithout"]) == ({}, [])
    assert document["models"]["gone"]["estimate"] is None
    for words in (
        "open: 1 KiB of 'host' are declared",
        "open: llama-server keeps",
        "8 GiB of past",
    ):
        assert any(words in sentence for sentence in document["advice"]), words
    assert not any("told" in sentence for sentence in document["advice"])
    assert all(f"advice: {sentence}" in table for sentence in document["advice"])
    assert "host ~" in table
    assert "host 1 KiB" in table


def test_a_file_that_is_no_model_is_told(llmsnap: Run, tmp_path: Path) -> None:
    """As a warning: the server may know better."""
    (tmp_path / "m.gguf").write_text("no model")
    path = tmp_path / "config.yaml"
    path.write_text(f"models: {{a: {{cmd: 'x --port ${{PORT}} -m {tmp_path}/m.gguf'}}}}")

    outcome = llmsnap("check", "--config", str(path), "--json")

    assert outcome.code == 0
    assert f"models.a: '{tmp_path}/m.gguf' is no GGUF file" in outcome.err
    assert len(outcome.json["warnings"]) == 1


def test_the_same_advice_is_given_once(llmsnap: Run, tmp_path: Path) -> None:
    """With all models that it is about."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "models:\n"
        "  a: {cmd: 'llama-server --port ${PORT} -m a.gguf'}\n"
        "  b: {cmd: 'llama-server --port ${PORT} -m b.gguf'}\n"
    )
    outcome = llmsnap("check", "--config", str(path))

    told = [line for line in outcome.out.splitlines() if "its slots share the context" in line]
    assert [line.split(": ")[:2] for line in told] == [["advice", "a, b"]]
