"""Presets of llama-server, as configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.config.argv import split_command
from llmsnap.config.loader import load
from llmsnap.config.presets import models_of
from llmsnap.errors import ConfigError

PRESET = """\
version = 1
; options of all models
[*]
c = 4096
jinja = true

[small]
model = /models/small one.gguf
--c = 2048
alias = s, mini
LLAMA_ARG_THREADS = 3
load-on-startup = true
stop-timeout = 20
sleep-idle-seconds = 60
port = 1

[ggml-org/gemma:Q8_0]
chat-template = chatml
"""


def test_a_section_is_a_model(tmp_path: Path) -> None:
    """What counts for all of them can be said otherwise in each."""
    path = tmp_path / "p.ini"
    path.write_text(PRESET)
    config = load(path).config
    small, gemma = config.models["small"], config.models["ggml-org/gemma:Q8_0"]

    assert split_command(small.cmd)[5:] == [
        *("-c", "2048", "--jinja"),
        *("--model", "/models/small one.gguf"),
    ]
    assert small.aliases == ("s", "mini")
    assert small.env == ("LLAMA_ARG_THREADS=3",)
    assert (small.ttl_s, small.unload_timeout_s) == (60, 20)
    assert config.hooks.on_startup.preload == ("small",)
    assert split_command(gemma.cmd)[5:] == [
        *("--hf-repo", "ggml-org/gemma:Q8_0", "-c", "4096"),
        *("--jinja", "--chat-template", "chatml"),
    ]


def test_a_folder_is_run_as_the_preset_behind_it_wants(tmp_path: Path) -> None:
    """`[*]` counts for its models, and a section for the one of its name, as with llama-server."""
    folder, preset = tmp_path / "models", tmp_path / "p.ini"
    folder.mkdir()
    for name in ("alpha", "beta"):
        (folder / f"{name}.gguf").write_bytes(bytes(1))
    preset.write_text("[*]\nnp = 2\nc = 2048\n[alpha]\nc = 1024\nalias = al\n[new]\nm = /n.gguf\n")
    models = load(folder, preset).config.models

    assert {id_: split_command(model.cmd)[5:] for id_, model in models.items()} == {
        "alpha": ["-np", "2", "-c", "1024", "--model", str(folder / "alpha.gguf")],
        "beta": ["-np", "2", "-c", "2048", "--model", str(folder / "beta.gguf")],
        "new": ["-np", "2", "-c", "2048", "-m", "/n.gguf"],
    }
    assert models["alpha"].aliases == ("al",)


def test_an_empty_folder_beside_a_preset_is_no_mistake(tmp_path: Path) -> None:
    """Its models are then those of the preset alone."""
    (tmp_path / "models").mkdir()
    (tmp_path / "p.ini").write_text("[new]\nm = /n.gguf\n")

    assert [*load(tmp_path / "models", tmp_path / "p.ini").config.models] == ["new"]


def test_what_is_no_line_of_a_preset_is_named() -> None:
    """With its place."""
    with pytest.raises(ConfigError, match=r"x\.ini:2: 'nonsense'"):
        models_of("[a]\nnonsense\n", "x.ini")


def test_a_preset_that_cant_be_read_is_an_error(tmp_path: Path) -> None:
    """As any other file."""
    with pytest.raises(ConfigError, match="check the path"):
        load(tmp_path / "none.ini")
    (tmp_path / "odd.ini").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "odd.ini")
