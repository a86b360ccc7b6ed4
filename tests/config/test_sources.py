"""Several files as one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmsnap.config.loader import Loaded, load, loads_all
from llmsnap.config.sources import files_of, text_of
from llmsnap.errors import ConfigError

A = "models: {a: {cmd: 'z ${PORT}'}}\n"


def together(*texts: str, **environ: str) -> Loaded:
    """Read texts as files `f1`, `f2` and so on."""
    return loads_all(
        [(f"f{number}", text) for number, text in enumerate(texts, start=1)], environ=environ
    )


def refusal(*texts: str) -> str:
    """Return the error that they give."""
    with pytest.raises(ConfigError) as caught:
        together(*texts)
    return str(caught.value)


def test_mappings_are_merged_and_lists_joined() -> None:
    """Whatever is in only one of them is there."""
    config = together(
        A + "schedule: {hold: 1s}\nallowedHosts: [x]\n",
        "schedule: {fairAfter: 2s}\nallowedHosts: [y]\nmodels: {b: {cmd: 'z ${PORT}'}}\n",
    ).config

    assert list(config.models) == ["a", "b"]
    assert (config.schedule.hold_s, config.schedule.fair_after_s) == (1, 2)
    assert config.allowed_hosts == ("x", "y")
    assert config.models["b"].proxy == "http://localhost:5801"


def test_macros_of_one_file_work_in_the_next() -> None:
    """In the order of the files."""
    config = together(
        "macros: {bin: /opt}\n", "macros: {srv: '${bin}/srv ${PORT}'}\nmodels: {a: {cmd: '${srv}'}}"
    ).config

    assert config.models["a"].cmd == "/opt/srv 5800"


def test_variables_are_put_in_file_by_file() -> None:
    """An error names the file in which one isn't set."""
    assert together(A, "logLevel: ${env.LEVEL}", LEVEL="debug").config.log_level == "debug"
    assert refusal(A, "\nlogLevel: ${env.NONE}").startswith("f2:2: logLevel: environment variable")


@pytest.mark.parametrize(
    ("first", "second"),
    [("logLevel:", "logLevel: debug"), ("logLevel: debug", "logLevel:"), ("logLevel: debug", "")],
)
def test_an_empty_value_gives_way(first: str, second: str) -> None:
    """And so does an empty file."""
    assert together(first, second).config.log_level == "debug"


@pytest.mark.parametrize(("first", "second"), [("1", "'1'"), ("~", "debug"), ("debug", "null")])
def test_values_that_only_look_alike_are_a_conflict(first: str, second: str) -> None:
    """Text isn't a number, and a null that is written is a value."""
    assert refusal(f"logLevel: {first}", f"logLevel: {second}") == (
        "f2:1: logLevel: conflict at logLevel: f1:1 has another value; keep one of them"
    )


def test_the_newer_places_are_identity_maps_too() -> None:
    """A group is described in one file."""
    routing = "routing: {router: {settings: {groups: {g: {members: [a]}}}}}"

    assert "f2:1: routing.router.settings.groups.g: duplicate routing.router.settings" in refusal(
        A + routing, routing
    )


def test_errors_and_warnings_name_the_file() -> None:
    """Sorted by file, then by line."""
    result = together("x1: 1\n" + A, "# two\nx2: 1\n")

    assert [warning.split(": ")[:2] for warning in result.warnings] == [
        ["f1:1", "x1"],
        ["f2:2", "x2"],
    ]
    assert result.name == "f1, f2"
    assert refusal(A, "\n\nstartPort: 0").startswith("f2:3: startPort: must be at least 1")
    assert refusal(A, "a: [").startswith("f2:2: not valid YAML")


def test_the_files_of_a_folder(tmp_path: Path) -> None:
    """By name and not from folders below; `--config` comes first."""
    for name in ("b.yml", "a.yaml", "c.txt", "d.yaml/e.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(A.replace("a:", f"{name[0]}:"))
    other = tmp_path / "other"

    files = files_of(other, tmp_path)
    assert [path.name for path in files] == ["other", "a.yaml", "b.yml"]
    assert list(load(*files[1:]).config.models) == ["a", "b"]


def test_a_link_to_the_file_is_the_file(tmp_path: Path) -> None:
    """However it is called in the folder."""
    (tmp_path / "x.yaml").write_text(A)
    folder = tmp_path / "folder"
    folder.mkdir()
    os.symlink(tmp_path / "x.yaml", folder / "y.yaml")

    with pytest.raises(ConfigError, match="remove it from one of them"):
        files_of(tmp_path / "x.yaml", folder)


def test_folders_without_files(tmp_path: Path) -> None:
    """Alone they are an error, beside a file they are fine."""
    with pytest.raises(ConfigError, match=r"no configuration sources: .* has no \.yml or \.yaml"):
        files_of(None, tmp_path)
    assert files_of(tmp_path / "x", tmp_path) == [tmp_path / "x"]
    with pytest.raises(ConfigError, match="no such file or directory; check the path"):
        files_of(None, tmp_path / "missing")


def test_a_model_that_is_named_by_mistake_isnt_read(tmp_path: Path) -> None:
    """It may be larger than memory."""
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.truncate(10**12)

    with pytest.raises(ConfigError, match="so it is no configuration"):
        text_of(path)
