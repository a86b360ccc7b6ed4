"""All looks at the machine, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmsnap.config.loader import Loaded
from llmsnap.doctor.finding import Finding, Status
from llmsnap.doctor.gpu import gpus
from llmsnap.doctor.setup import commands, configuration, llama_server, ports, state
from llmsnap.doctor.system import system
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
    root: Path = Path("/")
    """Where `proc` and `sys` are."""
    platform: str = sys.platform


async def examine(case: Case) -> list[Finding]:
    """Return what was found, in the order in which it is best read. Nothing is changed."""
    config = case.loaded.config if case.loaded else None
    findings = await gpus(case.probe, read_kernel(case.root / "proc"))
    if case.platform == "linux":
        findings += system(case.root, wanted_swap=_largest_on_cpu(case.loaded))
    else:
        found = f"on {case.platform} models are stopped and started; they sleep on Linux only"
        findings.append(Finding("sleep", Status.WARN, found, "engines with endpoints for it can"))
    if case.loaded is not None:
        findings.append(configuration(case.loaded))
        findings += commands(case.loaded.config, case.environ)
    findings.append(await llama_server(case.environ))
    findings += await ports(case.host, case.port, config)
    findings.append(state(case.state))
    return findings


def _largest_on_cpu(loaded: Loaded | None) -> int:
    """Return the bytes of the largest model that declares RAM and no GPU."""
    models = loaded.config.models.values() if loaded else ()
    return max((model.ram_bytes or 0 for model in models if not model.vram), default=0)
