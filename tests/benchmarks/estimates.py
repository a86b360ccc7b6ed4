"""What llama-servers really hold, beside what was estimated before they started.

    python -m tests.benchmarks.estimates [--only WORD] [--skip N]

Each row starts a real server on the processor, fills the context of each of its slots, and reads
the resident memory (RSS) of the process. A conversation that is put away into RAM isn't part of an
estimate, so that rows with several slots keep none (`--cache-ram 0`). Rows with weights or caches
that aren't F16 run llama.cpp inside Python: the packaged llama-server needs other processors for
them. Takes six minutes on two cores, and 1 GB below the system's folder for temporary files.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from llmsnap.cli.demo import find_gemma3, find_smollm2
from llmsnap.config.schema import ModelConfig
from llmsnap.memory.gguf import Estimate, estimate_for
from llmsnap.memory.kernel import usage
from tests.helpers.llama import made_gguf, server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_port

_MIB: Final = 1024**2
_PATIENCE_S: Final = 600
_A_WORD: Final = 270
"""A token that is text in every one of the models."""
_LEFT_FREE: Final = 16


@dataclass(frozen=True)
class Row:
    """One server: a model, in words and as a file, and flags."""

    model: str
    path: Callable[[], Path]
    flags: str
    inside_python: bool = False


def small(**shape: Any) -> Callable[[], Path]:
    """Return what makes a model with random weights of this shape."""
    name = "-".join(f"{key}{value}" for key, value in shape.items())
    return partial(made_gguf, f"estimate-{name}", **shape)


MIDDLE: Final = small(layers=8, embd=512, ff=2048, heads=8, kv_heads=2)
WIDE: Final = small(layers=4, embd=768, ff=6144, heads=12, kv_heads=4)
MANY_HEADS: Final = small(layers=16, embd=512, ff=1024, heads=16, kv_heads=16)
LARGE: Final = small(layers=12, embd=1536, ff=4096, heads=12, kv_heads=4)
EXPERTS: Final = small(layers=6, embd=512, ff=1024, heads=8, kv_heads=4, experts=8)
Q8: Final = small(layers=12, embd=1024, ff=4096, heads=8, kv_heads=4, type_name="Q8_0")
Q4: Final = small(layers=12, embd=1024, ff=4096, heads=8, kv_heads=4, type_name="Q4_0")


def gemma() -> Path:
    """Return Gemma 3 270M, put together beside the models with random weights."""
    return find_gemma3(tiny_gguf().parent)


ROWS: Final = (
    Row("4 layers of 256, F16", tiny_gguf, "-c 4096 -np 1"),
    Row("4 layers of 256, F16", tiny_gguf, "--cache-ram 0"),
    Row("4 layers of 256, F16", tiny_gguf, "-c 4096 -np 2 --cache-ram 0"),
    Row("4 layers of 256, F16", tiny_gguf, "-c 8192 -np 1 -ub 128"),
    Row("4 layers of 256, F16", tiny_gguf, "-c 4096 -np 1 -fa off"),
    Row("8 layers of 512, F16", MIDDLE, "-c 4096 -np 1"),
    Row("8 layers of 512, F16", MIDDLE, "-c 4096 -np 4 --no-mmap --cache-ram 0"),
    Row("4 layers of 768, wide, F16", WIDE, "-c 2048 -np 1"),
    Row("16 layers of 512, 16 KV heads, F16", MANY_HEADS, "-c 2048 -np 1"),
    Row("12 layers of 1536, F16", LARGE, "-c 1024 -np 1"),
    Row("6 layers of 512, 8 experts, F16", EXPERTS, "-c 2048 -np 1"),
    Row("4 layers of 256, F16", tiny_gguf, "-c 4096 -np 1 -ctk q8_0 -ctv q8_0", True),
    Row("SmolLM2 135M, Q4_1", find_smollm2, "-c 2048 -np 1 --no-repack", True),
    Row("SmolLM2 135M, Q4_1", find_smollm2, "-c 1024 -np 1 -ctk q8_0 -ctv q5_1", True),
    Row("Gemma 3 270M, Q4_K_M, windows", gemma, "-c 2048 -np 1 --no-repack", True),
    Row("Gemma 3 270M, Q4_K_M, windows", gemma, "-c 2048 -np 1", True),
    Row("Gemma 3 270M, Q4_K_M, windows", gemma, "-c 2048 -np 1 --swa-full", True),
    Row("Gemma 3 270M, Q4_K_M, windows", gemma, "-c 2048 -np 2 --cache-ram 0", True),
    Row("12 layers of 1024, Q8_0", Q8, "-c 1024 -np 1 --no-repack", True),
    Row("12 layers of 1024, Q4_0", Q4, "-c 1024 -np 1 --no-repack", True),
    Row("12 layers of 1024, Q4_0", Q4, "-c 1024 -np 1", True),
    Row("12 layers of 1024, Q4_0", Q4, "-c 1024 -np 1 --no-mmap", True),
)


def estimated(row: Row) -> Estimate:
    """Return what is estimated of `row` as its command stands in a configuration."""
    command = shlex.join([*program(row), "-m", str(row.path()), *shlex.split(row.flags)])
    found = estimate_for(ModelConfig(cmd=command), ("host",), {})
    assert found is not None
    return found


def measured_bytes(row: Row) -> int:
    """Return the RSS of the row's server once every slot was full."""
    with running(row) as (pid, url):
        slots = ask(f"{url}/slots")
        for slot in slots:
            prompt = [_A_WORD + n % 40 for n in range(slot["n_ctx"] // _shares(row, slots))]
            body = {"prompt": prompt[:-_LEFT_FREE], "n_predict": 4, "id_slot": slot["id"]}
            ask(f"{url}/completion", body)
        return usage(Path(f"/proc/{pid}/status").read_text()).rss_bytes


def _shares(row: Row, slots: Sequence[Any]) -> int:
    """Return among how many slots the context is shared."""
    return 1 if "-np" in row.flags else len(slots)


def program(row: Row) -> list[str]:
    """Return how the row's server is called."""
    if row.inside_python:
        return [sys.executable, "-m", "tests.helpers.children.llama_inside"]
    return server_argv(row.path())[:1]


@contextmanager
def running(row: Row) -> Iterator[tuple[int, str]]:
    """Run the row's server; yield its pid and its URL once it is ready."""
    port = free_port()
    options = ["-m", str(row.path()), "--host", "127.0.0.1", "--port", str(port), "-t", "1"]
    process = subprocess.Popen(
        [*program(row), *options, *shlex.split(row.flags)],
        env=server_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        until_ready(process, url)
        yield process.pid, url
    finally:
        process.kill()
        process.wait()


def until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait for the server's health; raise RuntimeError when it ends, or takes too long."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}")
        try:
            ask(f"{url}/health")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the server isn't ready")


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """Return the JSON that a server answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
        return json.load(answer)


def main() -> None:
    """Print a row a server, as docs/memory.md shows them."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="rows whose text holds this word")
    options.add_argument("--skip", type=int, default=0, help="so many rows at the beginning")
    chosen = options.parse_args()
    print(f"{platform.machine()}, Linux {platform.release()}\n")
    print("| model | flags | estimated, MiB | measured, MiB | over |")
    print("|---|---|---|---|---|")
    for row in ROWS[chosen.skip :]:
        if chosen.only not in f"{row.model} {row.flags}":
            continue
        guess, found = estimated(row).need["host"], measured_bytes(row)
        inside = " ¹" if row.inside_python else ""
        cells = (
            f"{row.model}{inside}",
            f"`{row.flags}`",
            f"{guess / _MIB:.0f}",
            f"{found / _MIB:.0f}",
            f"{100 * (guess / found - 1):.0f} %",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
