"""Sleep and wake on a real GPU, measured: writes gpu-report.json.

    python -m tests.gpu.report [--out gpu-report.json] [--gib 1 8 20] [--cycles 5]
        [--budget-s 480] [--llama-server PATH --model GGUF]

It needs nothing but the driver and llmsnap's own dependencies; steps that need more (pytest,
another user, a llama-server) say what they lack. Each step has a time limit of its own, and the
report is written after each. Without a GPU it says so and writes nothing. On the simulated one
(LD_LIBRARY_PATH, see tests/sim) it runs as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from llmsnap.memory.nvml import NvmlProbe
from llmsnap.sleep.eligibility import kernel_fault, read_kernel
from tests.gpu import steps
from tests.gpu.steps import Options

Step = Callable[[Options], Awaitable[Any]]

FIRST: list[tuple[str, Step, float]] = [
    # Name, what it does, and how many seconds it may take; the most valuable first.
    ("machine", steps.machine, 10),
    ("caller", steps.caller, 60),
]
LAST: list[tuple[str, Step, float]] = [
    ("llama", steps.llama, 180),
    ("proxy", steps.proxy, 120),
    ("contract", steps.contract, 180),
    ("copies", steps.copies, 60),
    ("other_user", steps.other_user, 30),
    ("huge_pages", steps.huge_pages, 60),
]


def steps_for(options: Options) -> list[tuple[str, Step, float]]:
    """Return the steps that are asked for; each size is one, so that one may fail alone."""
    sizes: list[tuple[str, Step, float]] = [
        (f"cycles_{gib:g}_gib", partial(steps.cycles, gib=gib), 60 + 12 * gib)
        for gib in options.gib
    ]
    wanted = options.only
    return [
        step
        for step in (*FIRST, *sizes, *LAST)
        if not wanted or step[0] in wanted or (step in sizes and "cycles" in wanted)
    ]


@dataclass
class Report:
    """What was found so far, kept on disk."""

    path: Path
    deadline: float
    content: dict[str, Any] = field(default_factory=dict)

    async def take(self, name: str, step: Step, limit_s: float, options: Options) -> None:
        """Run one step within its time and ours; whatever it raises belongs into the report."""
        limit_s = min(limit_s, self.deadline - time.monotonic())
        begun = time.monotonic()
        if limit_s <= 0:
            self.content[name] = {"skipped": "no time is left"}
        else:
            try:
                async with asyncio.timeout(limit_s):
                    self.content[name] = await step(options)
            except Exception as error:  # the report's root: the next steps still tell something
                self.content[name] = {"failed": f"{type(error).__name__}: {error}"}
        took_s = time.monotonic() - begun
        print(f"{name}: {json.dumps(self.content[name])} ({took_s:.1f} s)", flush=True)
        self.path.write_text(json.dumps(self.content, indent=2) + "\n")


async def missing() -> str:
    """Return why there is nothing to measure; empty when there is."""
    if fault := kernel_fault(read_kernel()):
        return fault
    probe = NvmlProbe(clock=time.monotonic)
    readings = await probe.read()
    await probe.aclose()
    return readings.fault or ("" if readings.devices else "the driver knows no GPU")


async def main(options: Options, out: Path, budget_s: float) -> int:
    """Take all steps; return the exit code."""
    if why := await missing():
        print(f"no GPU: {why}")
        return 0
    report = Report(out, time.monotonic() + budget_s)
    for name, step, limit_s in steps_for(options):
        await report.take(name, step, limit_s, options)
    return 0


def parse(arguments: list[str]) -> tuple[Options, Path, float]:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.report")
    parser.add_argument("--out", type=Path, default=Path("gpu-report.json"))
    parser.add_argument("--gib", type=float, nargs="+", default=[1, 8, 20])
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--budget-s", type=float, default=480)
    parser.add_argument("--only", nargs="*", default=[], metavar="STEP")
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--model", type=Path)
    given = parser.parse_args(arguments)
    options = Options(
        environ=dict(os.environ),
        gib=given.gib,
        cycles=given.cycles,
        only=given.only,
        llama_server=given.llama_server,
        model=given.model,
    )
    return options, given.out, given.budget_s


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*parse(sys.argv[1:]))))
