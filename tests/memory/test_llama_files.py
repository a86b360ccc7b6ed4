"""Which files of a command aren't there; what can't be known counts as there."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.memory.llama_files import cut_off, missing_files
from tests.helpers.llama import tiny_gguf


@pytest.mark.parametrize(
    ("options", "env", "missing"),
    [
        ("-m {}/a.gguf", {}, []),
        ("-m {}/b.gguf", {}, ["b.gguf"]),
        ("--model={}/b.gguf --mmproj {}/c.gguf", {}, ["b.gguf", "c.gguf"]),
        ("-m {}/a.gguf -md {}/d.gguf --lora {}/l.gguf", {}, ["d.gguf", "l.gguf"]),
        ("", {"LLAMA_ARG_MODEL": "{}/b.gguf"}, ["b.gguf"]),
        ("-m {}/s-00001-of-00003.gguf", {}, ["s-00003-of-00003.gguf"]),
        ("-m {}", {}, [""]),
        ("-m {}/a.gguf/b.gguf", {}, ["a.gguf/b.gguf"]),
        ("-m {}/b.gguf -mu https://h/b.gguf", {}, []),
        ("--hf-repo=a/b -m {}/b.gguf", {}, []),
        ("-m {}/b.gguf", {"LLAMA_ARG_HF_REPO": "a/b"}, []),
        ("-m x\0y", {}, []),
        ("--models-dir {}/none", {}, []),
    ],
)
def test_what_is_missing(
    options: str, env: dict[str, str], missing: list[str], tmp_path: Path
) -> None:
    """Of every option that names files, each part of a split one; nothing that is fetched."""
    for there in ("a.gguf", "s-00001-of-00003.gguf", "s-00002-of-00003.gguf"):
        (tmp_path / there).touch()
    argv = ["llama-server", *options.replace("{}", str(tmp_path)).split()]
    env = {name: value.replace("{}", str(tmp_path)) for name, value in env.items()}

    found = missing_files(argv, env)

    assert found == [f"{tmp_path}/{name}".rstrip("/") for name in missing]


def test_a_file_that_is_cut_off_is_told_until_it_is_whole(tmp_path: Path) -> None:
    """Within its header or within its weights; what is no GGUF file is the server's to judge."""
    whole = tiny_gguf().read_bytes()
    file = tmp_path / "m.gguf"
    argv = ["llama-server", "-m", str(file)]
    for end in (0, 3, 100, len(whole) - 1):
        file.write_bytes(whole[:end])
        assert "is cut off" in cut_off(argv, {})
        assert str(file) in cut_off(argv, {})
    for fine in (whole, b"ggml" + whole):
        file.write_bytes(fine)
        assert not cut_off(argv, {})
    file.unlink()
    assert not cut_off(argv, {})
