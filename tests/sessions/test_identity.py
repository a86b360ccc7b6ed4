"""What must be the same for a file to mean anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmsnap.sessions.identity import difference, identity_of

BASE = "llama-server --port 5800 -m {} -c 4096 -np 1 --threads 2 --api-key x"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that is taken for a model."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes(1000))
    return path


def changed(model: Path, more: str = "", env: dict[str, str] | None = None) -> str:
    """What differs between a command and the same with `more`."""
    before = identity_of(BASE.format(model).split(), {})
    after = identity_of(f"{BASE.format(model)} {more}".split(), env or {})
    return difference(before.facts, after.facts)


@pytest.mark.parametrize(
    "more",
    [
        *(
            "--port 5801",
            "-t 8",
            "-np 1 -kvu",
            "-c 8192",
            "-ngl 99",
            "--temp 0.1",
            "--slots",
            "-cb",
        ),
        *(
            "--slot-save-path /elsewhere/",
            "-np 3 --kv-unified",
            "--metrics --no-webui",
            "--seed -1",
        ),
    ],
)
def test_u130_e10_what_changes_nothing_may_differ(model: Path, more: str) -> None:
    """Ports, slots, and the size of the context, which servers even choose by themselves."""
    assert changed(model, more) == ""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("-ctk q8_0", "--cache-type-k was not there and is q8_0"),
        ("--cache-type-v=q4_0", "--cache-type-v was not there and is q4_0"),
        ("-fa on", "--flash-attn was not there and is on"),
        ("--swa-full", "--swa-full was not there and is there"),
        ("--lora x.gguf --rope-scale 2", "--lora was not there and is x.gguf"),
        ("--rope-freq-base 1e6", "--rope-freq-base was not there and is 1e6"),
        ("-md draft.gguf", "--model-draft was not there and is draft.gguf"),
        ("-np 4", "-np without --kv-unified was not there and is 4"),
        ("--something-new", "--something-new was not there and is there"),
    ],
)
def test_e09_what_else_differs_is_named(model: Path, more: str, told: str) -> None:
    """Options that nobody knows count, too."""
    assert changed(model, more) == told


def test_variables_of_llama_server_count(model: Path) -> None:
    """But those of what changes nothing."""
    assert "LLAMA_ARG_CACHE_TYPE_K" in changed(model, env={"LLAMA_ARG_CACHE_TYPE_K": "q8_0"})
    assert changed(model, env={"LLAMA_ARG_PORT": "1", "HOME": "/x"}) == ""


def test_u135_e09_another_file_under_the_same_name_is_told(model: Path) -> None:
    """By its size, its time and its beginning."""
    argv = BASE.format(model).split()
    before = identity_of(argv, {})
    stamp = model.stat()
    model.write_bytes(b"GGUX" + bytes(1000))
    os.utime(model, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    assert "--model was" in difference(before.facts, identity_of(argv, {}).facts)


def test_every_part_of_a_split_model_counts(tmp_path: Path) -> None:
    """Also where the names are links to blobs, as in Hugging Face's cache; one may be missing."""
    parts = [tmp_path / f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    blobs = [tmp_path / name for name in "xyz"]
    for part, blob in zip(parts, blobs, strict=True):
        part.symlink_to(blob)
    for blob in blobs[:2]:
        blob.write_bytes(b"GGUF")
    argv = BASE.format(parts[0]).split()
    before = identity_of(argv, {})
    blobs[1].write_bytes(b"GGUF and more")

    assert "--model was" in difference(before.facts, identity_of(argv, {}).facts)


def test_e09_another_build_isnt_a_fact_but_is_told(tmp_path: Path, model: Path) -> None:
    """A library that was replaced makes it another engine."""
    program = tmp_path / "bin" / "llama-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    library = program.with_name("libllama.so")
    library.write_bytes(b"one")
    argv = [str(program), *BASE.format(model).split()[1:]]
    before = identity_of(argv, {})
    library.write_bytes(b"another")
    after = identity_of(argv, {})

    assert before.facts == after.facts
    assert before.engine != after.engine
    assert before.key != after.key
