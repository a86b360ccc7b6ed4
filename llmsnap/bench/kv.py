"""`llmsnap bench kv`, without its command line: temporary copies of a model, and which is best."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from llmsnap.bench import llama_bench
from llmsnap.bench.advice import advise
from llmsnap.bench.report import Report
from llmsnap.bench.run import INTERRUPTED
from llmsnap.bench.samples import Scene
from llmsnap.bench.variants import Variant
from llmsnap.config.argv import split_command
from llmsnap.config.loader import Loaded
from llmsnap.config.schema import ModelConfig
from llmsnap.errors import LlmsnapError, ModelFileError
from llmsnap.memory.gguf import estimate_for
from llmsnap.runtime.ports import free_ports

SCENES: Final = (Scene.NEW, Scene.RESTORED, Scene.ASLEEP, Scene.AWAKE)
_FIRST_PORT: Final = 21000


def command_of(loaded: Loaded, model: str) -> tuple[ModelConfig, list[str]]:
    """Return a model and its command, which must be a llama-server's. Raises LlmsnapError."""
    models = loaded.config.models
    if model not in models:
        raise LlmsnapError(f"no model is called {model!r}; there are: {', '.join(models)}")
    argv = split_command(models[model].cmd)
    if not any(word in ("-m", "--model") for word in argv):
        raise LlmsnapError(
            f"{model!r} isn't run by a llama-server with `-m FILE`; its cache can't be varied"
        )
    return models[model], argv


def configuration(loaded: Loaded, model: ModelConfig, variants: Sequence[Variant]) -> str:
    """Return a configuration of all variants, of which one at a time is up; JSON is YAML."""
    devices = loaded.config.memory.devices
    document = {
        "startPort": free_ports(len(variants), first=_FIRST_PORT),
        "schedule": {"hold": 0},
        "sleep": {"after": 0},
        **({"memory": {"devices": dict(devices)}} if devices else {}),
        "groups": {"kv": {"swap": True, "exclusive": True, "members": [v.name for v in variants]}},
        "models": {v.name: {"cmd": v.command, "env": list(model.env)} for v in variants},
    }
    return json.dumps(document)


def sum_up(
    report: Report,
    loaded: Loaded,
    model: ModelConfig,
    variants: Sequence[Variant],
) -> None:
    """Add to the report the commands, what their caches take, and which to take."""
    sizes = {one.name: kv_bytes(model, one, loaded.config.memory.devices) for one in variants}
    advise(report, variants, sizes)
    report.settings = {
        **report.settings,
        "commands": {one.name: one.command for one in variants},
        "kv_bytes": sizes,
    }


def add_llama_bench(
    report: Report,
    model: ModelConfig,
    variants: Sequence[Variant],
    lengths: Sequence[int],
    *,
    limit_s: float,
    show: Callable[[str], None],
) -> None:
    """Add what `llama-bench` says of the same settings, where it is found.

    Each setting that it knows is measured once, until `limit_s` is over or somebody stops it.
    """
    program = llama_bench.find(variants[0].argv)
    if program is None or report.ended:
        return
    env = {**os.environ, **dict(entry.partition("=")[::2] for entry in model.env)}
    commands = {llama_bench.command(program, v.argv, env, lengths): v.name for v in variants[::-1]}
    rows: list[dict[str, Any]] = []
    until = time.monotonic() + limit_s
    try:
        for argv, name in reversed(commands.items()):
            show(f"{llama_bench.PROGRAM}: {name}")
            try:
                found = llama_bench.rates(argv, env, max(1.0, until - time.monotonic()))
            except LlmsnapError as error:
                report.left_out.append(f"{name}: {error}")
            else:
                rows += [{"variant": name, **row} for row in found]
                report.notes.append(f"{llama_bench.PROGRAM}, {name}: {llama_bench.in_words(found)}")
    except KeyboardInterrupt:
        report.ended = INTERRUPTED
    report.settings = {**report.settings, "llama_bench": rows}


def kv_bytes(model: ModelConfig, variant: Variant, devices: Mapping[str, int]) -> int | None:
    """Return what its cache takes, as its file and command tell; None: they don't."""
    try:
        estimate = estimate_for(
            structs.replace(model, cmd=variant.command), devices or {"host": 1 << 62}, os.environ
        )
    except (ModelFileError, OSError):
        return None
    return sum(parts.kv for parts in estimate.parts.values()) if estimate else None
