"""Which files of a command aren't there; what can't be known counts as there."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.memory.llama_files import missing_files


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
