"""`llmsnap bench kv`, without its command line: temporary copies of a model, and which is best."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from llmsnap.bench.report import Report
from llmsnap.bench.samples import OURS, Case, Sample, Scene, Spread, by_case, good
from llmsnap.bench.variants import Variant
from llmsnap.config.argv import split_command
from llmsnap.config.loader import Loaded
from llmsnap.config.schema import ModelConfig
from llmsnap.errors import LlmsnapError, ModelFileError
from llmsnap.memory.gguf import estimate_for
from llmsnap.runtime.ports import free_ports

SCENES: Final = (Scene.NEW, Scene.RESTORED, Scene.ASLEEP, Scene.AWAKE)
_CLOSE: Final = 1.1
"""What is at most so many times as slow as the best is as good."""
_USED: Final = 0.5
"""A cache that came back has at least that share of the prompt."""
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
    lengths: Sequence[int],
) -> None:
    """Add to the report the commands, what their caches take, and which to take."""
    sizes = {one.name: kv_bytes(model, one, loaded.config.memory.devices) for one in variants}
    advise(report, variants, sizes)
    report.settings = {
        **report.settings,
        "commands": {one.name: one.command for one in variants},
        "kv_bytes": sizes,
        "llama_bench": [row for one in variants for row in llama_bench(one, lengths)],
    }


def kv_bytes(model: ModelConfig, variant: Variant, devices: Mapping[str, int]) -> int | None:
    """Return what its cache takes, as its file and command tell; None: they don't."""
    try:
        estimate = estimate_for(
            structs.replace(model, cmd=variant.command), devices or {"host": 1 << 62}, os.environ
        )
    except (ModelFileError, OSError):
        return None
    return sum(parts.kv for parts in estimate.parts.values()) if estimate else None


def llama_bench(variant: Variant, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Return what llama-bench says of the same file and settings; nothing where it isn't found."""
    beside = Path(variant.argv[0]).with_name("llama-bench")
    program = str(beside) if beside.is_file() else shutil.which("llama-bench")
    if program is None:
        return []
    wanted = {"-m": "-m", "--model": "-m", "-ctk": "-ctk", "-ctv": "-ctv", "-fa": "-fa"}
    argv = [program, "-o", "json", "-r", "1", "-n", "32", "-p", ",".join(map(str, lengths))]
    for word, value in zip(variant.argv, variant.argv[1:], strict=False):
        if word in wanted:
            argv += [wanted[word], {"on": "1", "off": "0"}.get(value, value)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return []
    return [{"variant": variant.name, **one} for one in found]


def advise(report: Report, variants: Sequence[Variant], kv: Mapping[str, int | None]) -> None:
    """Add to the report which came back with their cache, and the command to take."""
    sizes = [f"{name} {size / 2**20:.0f} MiB" for name, size in kv.items() if size]
    if sizes:
        report.notes.append(f"the cache takes, by what its file tells: {', '.join(sizes)}")
    cases = by_case(report.samples)
    for case, samples in sorted(cases.items()):
        if case.scene in (Scene.RESTORED, Scene.ASLEEP):
            report.advice.append(_verdict(case, good(samples)))
    lengths = [case.length for case, samples in cases.items() if good(samples)]
    if not lengths:
        return
    longest = max(lengths)
    times = {
        v.name: first.median
        for v in variants
        if (first := _first(cases.get(_new(v.name, longest), ())))
    }
    if not times:
        return
    best_s = min(times.values())
    near = [v for v in variants if times.get(v.name, best_s * 9) <= best_s * _CLOSE]
    choice = min(near, key=lambda v: (kv.get(v.name) or 1 << 62, times[v.name]))
    size = kv.get(choice.name)
    report.advice.append(
        f"take {choice.command} : {times[choice.name]:.2f} s to the first token of {longest} new "
        f"tokens (the quickest: {best_s:.2f} s)"
        + (f", with the smallest cache of those, {size / 2**20:.0f} MiB" if size else "")
        + "; whether its answers are as good isn't measured"
    )


def _new(name: str, length: int) -> Case:
    return Case(name, length, Scene.NEW, OURS)


def _first(samples: Sequence[Sample]) -> Spread | None:
    return Spread.of(one.first_s for one in good(samples))


def _verdict(case: Case, samples: Sequence[Sample]) -> str:
    shares = Spread.of(
        one.cached / one.prompt if one.prompt and one.cached is not None else None
        for one in samples
    )
    if shares is None:
        return f"{case.model}, {case.length}, {case.scene}: its server doesn't say what was cached"
    word = "used" if shares.median >= _USED else "useless"
    return (
        f"{case.model}, {case.length}, {case.scene}: the cache was {word} "
        f"({shares.median:.0%} of the prompt)"
    )
