"""All looks at the machine, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmsnap.config.loader import Loaded
from llmsnap.doctor import gpu
from llmsnap.doctor.conversations import conversations
from llmsnap.doctor.finding import Finding, Status
from llmsnap.doctor.gpu import Cuda, Gpus, SelfTest
from llmsnap.doctor.prospects import Ground, Prospect, prospects
from llmsnap.doctor.setup import commands, configuration, llama_server, ports, state
from llmsnap.doctor.system import pageout_fault, swap_room, system
from llmsnap.memory.device import MemoryProbe
from llmsnap.sleep.eligibility import read_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is looked at."""

    loaded: Loaded | None
    """The configuration; None: there is none that can be used."""
    host: str
    port: int
    """Where the proxy is to listen."""
    state: Path
    environ: Mapping[str, str]
    probe: MemoryProbe
    cuda: Cuda
    self_test: SelfTest | None = None
    """Tries sleep on each GPU; None: it isn't to be tried."""
    running: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What a proxy that runs says of its models, by id."""
    root: Path = Path("/")
    """Where `proc` and `sys` are."""
    platform: str = sys.platform


@dataclass(frozen=True, slots=True)
class Report:
    """What was found."""

    findings: list[Finding]
    """In the order in which they are best read."""
    models: list[Prospect]
    """How each configured model sleeps."""


async def examine(case: Case) -> Report:
    """Look at everything. Nothing is changed; a self-test takes and gives back GPU memory."""
    config = case.loaded.config if case.loaded else None
    gpus = await gpu.look(case.probe, read_kernel(case.root / "proc"), case.cuda)
    findings = gpu.findings(gpus)
    if case.self_test is not None:
        findings += await gpu.self_tests(gpus, case.self_test)
    findings += _system(case)
    if case.loaded is not None:
        findings.append(configuration(case.loaded))
        findings += commands(case.loaded.config, case.environ)
        findings += conversations(case.loaded.config, case.environ)
    findings.append(await llama_server(case.environ, config))
    findings += await ports(case.host, case.port, config)
    findings.append(state(case.state))
    if config is None:
        return Report(findings, [])
    ground = _ground(case, gpus)
    return Report(findings, await prospects(config, case.environ, ground, case.running))


def _system(case: Case) -> list[Finding]:
    if case.platform == "linux":
        return system(case.root, wanted_swap=_largest_on_cpu(case.loaded))
    found = f"on {case.platform} models are stopped and started; they sleep on Linux only"
    return [Finding("sleep", Status.WARN, found, "engines with endpoints for it can")]


def _ground(case: Case, gpus: Gpus) -> Ground:
    if case.platform != "linux":
        fault = f"it works on Linux only, not on {case.platform}"
        return Ground(cuda_fault=gpus.fault or fault, pageout_fault=fault)
    swap = swap_room(case.root)
    return Ground(
        cuda_fault=gpus.fault,
        gpus=gpus.readings.devices,
        pageout_fault=pageout_fault(case.root, swap),
        swap_bytes=swap.free_bytes,
    )


def _largest_on_cpu(loaded: Loaded | None) -> int:
    """Return the bytes of the largest model that declares RAM and no GPU."""
    models = loaded.config.models.values() if loaded else ()
    return max((model.ram_bytes or 0 for model in models if not model.vram), default=0)
