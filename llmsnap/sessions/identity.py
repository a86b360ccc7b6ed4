"""What must be the same for a saved slot to mean anything: the model, its options, the engine.

llama-server itself checks little of it: a file of another model of the same shape is taken, and
the answers are nonsense. Ports, threads and the like may differ; the context must only be
large enough, which is looked at when a file is wanted. An option that isn't known here counts.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from llmsnap.config.argv import llama_words
from llmsnap.config.parts import parts_of
from llmsnap.sessions.pool import cache_count

_SAME: Final = {
    "-m": "--model",
    "-ctk": "--cache-type-k",
    "-ctv": "--cache-type-v",
    "-fa": "--flash-attn",
    "-mm": "--mmproj",
    "-md": "--model-draft",
    "-a": "--alias",
    "-hf": "--hf-repo",
}
_FREE_VALUES: Final = frozenset({
    "--host", "--port", "--reuse-port", "--api-key", "--api-key-file", "--path", "--api-prefix",
    "--ssl-key-file", "--ssl-cert-file", "--alias", "--tags", "-t", "--threads", "-tb",
    "--threads-batch", "--threads-http", "-C", "--cpu-mask", "--prio", "--poll", "-np",
    "--parallel", "-c", "--ctx-size", "-ngl", "--gpu-layers", "--n-gpu-layers", "-to", "--timeout",
    "--slot-save-path", "-sps", "--slot-prompt-similarity", "--cache-reuse", "-cram", "--cache-ram",
    "--log-file", "--log-colors", "-lv", "--verbosity", "--log-verbosity", "-n", "--predict",
    "--n-predict", "-s", "--seed", "--temp", "--temperature", "--top-k", "--top-p", "--min-p",
    "--samplers", "--sleep-idle-seconds", "-lm", "--load-mode", "-fit", "--fit", "-fitt",
    "--fit-target", "-fitc", "--fit-ctx", "--hf-token", "-hft",
})  # fmt: skip
"""Options whose value, and which themselves, change nothing of what a slot means."""
_FREE: Final = frozenset({
    "--metrics", "--no-metrics", "--props", "--slots", "--no-slots", "--no-webui", "--webui",
    "--no-ui", "--ui", "--no-warmup", "--warmup", "--mlock", "--no-mmap", "--mmap",
    "--log-disable", "--log-prefix", "--log-timestamps", "-v", "--verbose", "--offline",
    "--no-perf", "--perf", "-cb", "--cont-batching", "--no-cont-batching", "--cache-prompt",
    "--cache-idle-slots", "--no-cache-idle-slots", "-dio", "--direct-io", "-ndio",
    "--no-direct-io", "-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified", "--no-repack", "-nr",
    "--repack",
})  # fmt: skip
_VARIABLE: Final = "LLAMA_ARG_"
_FREE_VARIABLES: Final = frozenset({
    "LLAMA_ARG_HOST", "LLAMA_ARG_PORT", "LLAMA_ARG_THREADS", "LLAMA_ARG_N_PARALLEL",
    "LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_N_GPU_LAYERS", "LLAMA_ARG_TIMEOUT", "LLAMA_ARG_CACHE_RAM",
    "LLAMA_ARG_NO_MMAP", "LLAMA_ARG_ENDPOINT_METRICS", "LLAMA_ARG_ENDPOINT_SLOTS",
    "LLAMA_ARG_ENDPOINT_PROPS", "LLAMA_ARG_N_PREDICT", "LLAMA_ARG_SLOT_PROMPT_SIMILARITY",
})  # fmt: skip
_APART: Final = "-np without --kv-unified"
"""Slots with a cache each: llama-server refuses files from another number of caches."""
_HEADER_BYTES: Final = 64 * 1024

Facts = Mapping[str, str]
"""What must be the same, by what it is called."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One model as one process runs it."""

    facts: Facts
    engine: str
    """Which build of the server; another one is tried once."""

    @property
    def key(self) -> str:
        """What verdicts are kept by."""
        return digest_of(self.facts, self.engine)


def digest_of(facts: Facts, *more: str) -> str:
    """Return a name for all of it."""
    text = msgspec.json.encode((sorted(facts.items()), more))
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def identity_of(argv: Sequence[str], env: Mapping[str, str]) -> Identity:
    """Return what this command runs, by what its files are now. Reads the disk."""
    facts: dict[str, str] = {}
    for option, value in _options(argv):
        said = value if not value or "/" not in value else _stamps(value)
        facts[option] = f"{facts[option]} {said}" if option in facts else said
    for name in sorted(env):
        if name.startswith(_VARIABLE) and name not in _FREE_VARIABLES:
            facts[name] = env[name] if "/" not in env[name] else _stamps(env[name])
    if (caches := cache_count(argv, env)) > 1:
        facts[_APART] = str(caches)
    return Identity(facts, _engine(argv, env))


def difference(saved: Facts, now: Facts) -> str:
    """Return the first thing that isn't the same, in words; empty: all is."""
    for name in sorted({*saved, *now}):
        before, after = saved.get(name), now.get(name)
        if before != after:
            return f"{name} was {_shown(before)} and is {_shown(after)}"
    return ""


def _shown(value: str | None) -> str:
    return "not there" if value is None else value or "there"


def _options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options that count, with their values."""
    words = list(llama_words(argv))
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-"):
            continue
        follows = place < len(words) and _is_value(words[place])
        value = words[place] if follows else ""
        place += follows
        option = _SAME.get(word, word)
        if word in _FREE_VALUES or option in _FREE_VALUES or word in _FREE:
            continue
        yield option, value


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", word) is not None


def _stamps(value: str) -> str:
    """Return what the files in `value` are now: path, size, time, and a hash of their beginning."""
    return " ".join(_stamp(part) for path in value.split(",") for part in parts_of(path))


def _stamp(path: str) -> str:
    try:
        real = os.path.realpath(path)
        found = os.stat(real)
        with Path(real).open("rb") as file:
            head = hashlib.blake2b(file.read(_HEADER_BYTES), digest_size=8).hexdigest()
    except (OSError, ValueError):
        return path
    return f"{real} ({found.st_size} bytes, {found.st_mtime_ns}, {head})"


def _engine(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return which build this is: the program and its libraries, by path, size and time.

    What the server says of its build is of no use: packaged ones say `b1` or `unknown`.
    """
    program = next((word for word in argv if Path(word).name.startswith("llama-server")), "")
    found = shutil.which(program or next(iter(argv), ""), path=env.get("PATH"))
    if not found:
        return program
    real = Path(os.path.realpath(found))
    places = [real.parent, real.parent.parent / "lib"]
    places += [Path(place) for place in env.get("LD_LIBRARY_PATH", "").split(":") if place]
    libraries = {file for place in places for file in place.glob("lib*llama*")}
    told = " ".join(_brief(file) for file in (real, *sorted(libraries)))
    return f"{real} {hashlib.blake2b(told.encode(), digest_size=8).hexdigest()}"


def _brief(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:
        return str(file)
    return f"{file}:{found.st_size}:{found.st_mtime_ns}"
