"""llama.cpp's own `llama-bench` with the settings of a server's command: its rates, in its JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from llmsnap.config.argv import llama_words
from llmsnap.errors import LlmsnapError
from llmsnap.memory.llama_flags import read_flags

PROGRAM: Final = "llama-bench"
_GENERATED: Final = 32
_THREADS: Final = ("-t", "--threads")


def find(argv: Sequence[str]) -> str | None:
    """Return the program: the one beside the server, else the one on PATH; None: there is none."""
    beside = Path(shutil.which(argv[0]) or argv[0]).with_name(PROGRAM)
    return str(beside) if beside.is_file() else shutil.which(PROGRAM)


def command(
    program: str, argv: Sequence[str], env: Mapping[str, str], lengths: Sequence[int]
) -> tuple[str, ...]:
    """Return its command for what a server's says of file, cache, batches and devices.

    It knows neither contexts nor slots: its own are as long as each of its tests.
    """
    flags = read_flags(argv, env)
    said: dict[str, object] = {
        "-m": flags.model,
        "-ctk": flags.type_k,
        "-ctv": flags.type_v,
        "-fa": int(flags.flash),
        "-b": flags.batch,
        "-ub": flags.ubatch,
        "-sm": flags.split_mode,
        "-mg": flags.main_gpu,
        "-nkvo": int(not flags.kv_offload),
    }
    if flags.layers is not None:
        said["-ngl"] = min(flags.layers, 999)
    if flags.cpu_moe_layers:
        said["-ncmoe"] = min(flags.cpu_moe_layers, 999)
    if flags.split:
        said["-ts"] = "/".join(f"{share:g}" for share in flags.split)
    if flags.device:
        said["-dev"] = "/".join(flags.device)
    if threads := _threads(argv):
        said["-t"] = threads
    options = [word for option, value in said.items() for word in (option, str(value))]
    prompts = ",".join(map(str, lengths))
    return (program, *options, "-p", prompts, "-n", str(_GENERATED), "-r", "2", "-o", "json")


def rates(argv: Sequence[str], env: Mapping[str, str], limit_s: float) -> list[dict[str, Any]]:
    """Run it, for at most `limit_s`; return what it says, a row a test. Raises LlmsnapError."""
    try:
        done = subprocess.run(
            argv, env=dict(env), capture_output=True, text=True, timeout=limit_s, check=False
        )
    except OSError as error:
        raise LlmsnapError(f"{PROGRAM} can't be run: {error}") from error
    except subprocess.TimeoutExpired:
        raise LlmsnapError(f"{PROGRAM} took longer than the time that was left") from None
    try:
        rows = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise LlmsnapError(f"{PROGRAM} ended with {done.returncode}: {last}") from None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return its rates as it calls them: `pp512 1490 tokens/s, tg32 103.2 tokens/s`."""
    return ", ".join(_words(rows))


def _words(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        read, written, rate = row.get("n_prompt"), row.get("n_gen"), row.get("avg_ts")
        if isinstance(rate, int | float):
            test = f"pp{read}" if read else f"tg{written}"
            yield f"{test} {rate:.4g} tokens/s"


def _threads(argv: Sequence[str]) -> str:
    found = [value for word, value in pairwise(llama_words(argv)) if word in _THREADS]
    return found[-1] if found else ""
