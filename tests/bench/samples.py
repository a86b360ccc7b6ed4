"""Samples and reports made up for tests."""

from __future__ import annotations

from typing import Any

from llmsnap.bench.report import Machine, Report
from llmsnap.bench.samples import OURS, Sample, Scene

MACHINE = Machine(
    system="Linux", processor="a processor", cores=2, memory_bytes=2**34, swap_bytes=0
)


def sample(first_s: float = 1.0, **more: Any) -> Sample:
    """One that went well."""
    settings: dict[str, Any] = {
        "server": OURS,
        "model": "m",
        "scene": Scene.AWAKE,
        "length": 512,
        "turn": 1,
        "asked_at": "2026-11-30T12:00:00.000+00:00",
        "first_s": first_s,
        **more,
    }
    return Sample(**settings)


def report(*samples: Sample, **more: Any) -> Report:
    """One with these."""
    return Report(
        kind="swap",
        made_at="2026-11-30T12:00:00+00:00",
        machine=MACHINE,
        settings={},
        samples=list(samples),
        **more,
    )
