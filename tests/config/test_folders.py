"""Folders of GGUF files, as configurations."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmsnap.config.folders import folder_text, models_in
from llmsnap.config.loader import load
from llmsnap.errors import ConfigError


def put(folder: Path, *names: str) -> None:
    """Make files of these names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")


def found(folder: Path) -> dict[str, dict[str, str]]:
    """Model and projector of each name, relative to `folder`."""
    return {
        model.name: {
            option: str(Path(value).relative_to(folder)) for option, value in model.options
        }
        for model in models_in(folder)
    }


def test_files_go_by_their_names(tmp_path: Path) -> None:
    """What is no model is left out."""
    put(tmp_path, "a-Q4.gguf", "b.gguf", "read.me", ".cache/x.gguf")

    assert found(tmp_path) == {"a-Q4": {"--model": "a-Q4.gguf"}, "b": {"--model": "b.gguf"}}


def test_a_model_with_a_folder_of_its_own_goes_by_that(tmp_path: Path) -> None:
    """With its projector."""
    put(tmp_path, "gemma/model.gguf", "gemma/mmproj-F16.gguf")

    assert found(tmp_path) == {
        "gemma": {"--model": "gemma/model.gguf", "--mmproj": "gemma/mmproj-F16.gguf"}
    }


def test_several_in_a_folder_share_its_projector(tmp_path: Path) -> None:
    """As repositories hold several sizes of one model."""
    put(tmp_path, "g/q4.gguf", "g/q8.gguf", "g/mmproj.gguf")

    assert {name: of["--mmproj"] for name, of in found(tmp_path).items()} == {
        "q4": "g/mmproj.gguf",
        "q8": "g/mmproj.gguf",
    }


def test_at_the_top_a_projector_must_name_its_model(tmp_path: Path) -> None:
    """There it lies beside others' models."""
    put(tmp_path, "a.gguf", "gemma.gguf", "mmproj-gemma.gguf")

    assert "--mmproj" not in found(tmp_path)["a"]
    assert found(tmp_path)["gemma"]["--mmproj"] == "mmproj-gemma.gguf"


def test_parts_are_one_model_and_must_all_be_there(tmp_path: Path) -> None:
    """llama-server takes the first one."""
    put(tmp_path, *(f"big/big-0000{number}-of-00003.gguf" for number in (1, 2, 3)))
    put(tmp_path, "half-00001-of-00002.gguf", "late-00002-of-00002.gguf")

    assert found(tmp_path) == {"big": {"--model": "big/big-00001-of-00003.gguf"}}
    assert models_in(tmp_path)[0].notes == ("0 MiB in 3 files",)


def test_the_same_name_twice_is_told_apart_by_its_folder(tmp_path: Path) -> None:
    """As below LM Studio's folder."""
    put(tmp_path, "x/m/a.gguf", "y/m/a.gguf")

    assert set(found(tmp_path)) == {"x/m/a", "y/m/a"}


def test_paths_lead_through_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `../models`, which is short for the person, not in a file that stays."""
    put(tmp_path, "models/a.gguf")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    assert ".." not in folder_text(Path("../models")).split("models:", 1)[1]


def test_it_loads_with_odd_names_in_it(tmp_path: Path) -> None:
    """What a command can't hold is left out."""
    put(tmp_path, "it's a #1.gguf", "on.gguf", "7.gguf", "${x}.gguf", "new\nline.gguf")

    models = load(tmp_path).config.models

    assert set(models) == {"it's a #1", "on", "7"}
    assert str(tmp_path / "it's a #1.gguf").replace("'", "") in models["it's a #1"].cmd.replace(
        "'", ""
    ).replace('""', "")


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_without_models_is_an_error(tmp_path: Path, name: str) -> None:
    """It says so, and what to do."""
    with pytest.raises(ConfigError, match=r"put models into it|check the path"):
        folder_text(tmp_path / name)


def test_what_is_no_file_is_no_model(tmp_path: Path) -> None:
    """Links that lead nowhere, pipes and folders may be called as models are."""
    put(tmp_path, "a.gguf", "folder.gguf/read.me")
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link.gguf").symlink_to(tmp_path / "a.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")

    assert [*found(tmp_path)] == ["a", "link"]


def test_a_model_may_go_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a download is moved: the others are served, and it is said of that one."""
    put(tmp_path, "a.gguf", "b.gguf")
    monkeypatch.setattr("llmsnap.config.folders.parts_of", lambda path: (f"{path}.part",))

    assert [model.notes for model in models_in(tmp_path)] == [("its file is gone",)] * 2
