"""llama-bench, played by a program that prints as it does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from llmsnap.bench import llama_bench
from llmsnap.errors import LlmsnapError

ROWS = [
    {"n_prompt": 512, "n_gen": 0, "avg_ts": 1490.4, "type_k": "q8_0"},
    {"n_prompt": 0, "n_gen": 32, "avg_ts": 103.2, "type_k": "q8_0"},
]


def program(folder: Path, script: str) -> Path:
    """An executable beside a server."""
    path = folder / llama_bench.PROGRAM
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_one_beside_the_server_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the one on PATH; also where the server itself is found by PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert llama_bench.find(["/opt/llama-server"]) is None

    path = program(tmp_path, "")
    (tmp_path / "llama-server").write_text("")
    (tmp_path / "llama-server").chmod(0o755)
    (tmp_path / "other").mkdir()
    other = program(tmp_path / "other", "")
    assert llama_bench.find(["llama-server"]) == str(path)
    assert llama_bench.find([str(tmp_path / "other" / "llama-server")]) == str(other)
    assert llama_bench.find(["/opt/llama-server"]) == str(path)


def test_it_gets_the_servers_settings() -> None:
    """By its own names, and with its own lists; contexts and slots are unknown to it."""
    server = "llama-server --model=m.gguf -ctk q8_0 -ctv q4_0 -fa on -c 8192 -np 4 -t 6 -ub 256"
    gpus = "-ngl 99 -ts 3,1 -dev CUDA0,CUDA1 -nkvo --n-cpu-moe 5"
    found = llama_bench.command("lb", f"{server} {gpus}".split(), {}, [512, 4096])

    said = dict(zip(found[1::2], found[2::2], strict=True))
    assert found[0] == "lb"
    assert said == {
        **{"-m": "m.gguf", "-ctk": "q8_0", "-ctv": "q4_0", "-fa": "1", "-t": "6"},
        **{"-b": "2048", "-ub": "256", "-ngl": "99", "-ts": "3/1", "-dev": "CUDA0/CUDA1"},
        **{"-sm": "layer", "-mg": "0", "-nkvo": "1", "-ncmoe": "5"},
        **{"-p": "512,4096", "-n": "32", "-r": "2", "-o": "json"},
    }


def test_its_rows_are_taken_and_told(tmp_path: Path) -> None:
    """By the names that it has for its tests."""
    path = program(tmp_path, f"cat <<'E'\n{json.dumps(ROWS)}\nE")
    rows = llama_bench.rates([str(path)], os.environ, 60)

    assert rows == ROWS
    assert llama_bench.in_words(rows) == "pp512 1490 tokens/s, tg32 103.2 tokens/s"


@pytest.mark.parametrize(
    ("script", "limit_s", "words"),
    [
        ("echo 'error: no such model' >&2; exit 1", 60, "ended with 1: error: no such model"),
        ("exit 3", 60, "ended with 3: it said nothing"),
        ("exec sleep 60", 0.1, "longer than the time that was left"),
    ],
)
def test_what_goes_wrong_is_told(tmp_path: Path, script: str, limit_s: float, words: str) -> None:
    """In a line."""
    path = program(tmp_path, script)
    with pytest.raises(LlmsnapError, match=words):
        llama_bench.rates([str(path)], os.environ, limit_s)

    with pytest.raises(LlmsnapError, match="can't be run"):
        llama_bench.rates([str(tmp_path / "none")], os.environ, 60)
