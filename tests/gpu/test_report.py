"""The GPU report where there is no GPU, and on the simulated one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.sim.gauge import ROOT, python_module
from tests.sim.rig import has_gpu
from tests.sim.world import World


def run(out: Path, environ: Mapping[str, str] | None, *arguments: str) -> str:
    """Write a report to `out` and return what was printed."""
    command = python_module("tests.gpu.report", "--out", str(out), *arguments)
    env = {**(environ or {}), "PYTHONPATH": str(ROOT)}
    return subprocess.check_output(command, env=env, text=True)


@pytest.mark.skipif(has_gpu(), reason="there is a driver here")
def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    """And that is no failure."""
    assert run(tmp_path / "report.json", None).startswith("no GPU: there is no NVIDIA driver")
    assert not (tmp_path / "report.json").exists()


@pytest.mark.slow
@pytest.mark.e2e
def test_runs_on_the_simulated_gpu(world: World, tmp_path: Path) -> None:
    """Every byte is whole after each cycle, and behind the proxy nothing is started twice."""
    steps = ["machine", "caller", "cycles", "proxy", "copies"]
    sizes = ["--gib", "0.125", "0.25", "--cycles", "2"]
    run(tmp_path / "report.json", world.environ(), *sizes, "--only", *steps)

    report = json.loads((tmp_path / "report.json").read_text())

    assert report["machine"]["gpus"][0]["name"] == "Simulated 4090"
    assert (report["caller"]["gpu_mib"], report["caller"]["is_listed"]) == (0, False)
    for size in ("0.125", "0.25"):
        cycles = report[f"cycles_{size}_gib"]["cycles"]
        assert [cycle["whole"] for cycle in cycles] == [True, True]
        assert not any(cycle["listed_asleep"] for cycle in cycles)
    turns = report["proxy"]["turns"]
    assert {turn["generation"] for turn in turns} == {1}
    assert {turn["cache_n"] for turn in turns} == {len("Once upon a time")}
    assert report["copies"]["pinned_to_gpu_gb_s"] > 0


def test_a_step_that_fails_is_told_of_and_not_the_end(world: World, tmp_path: Path) -> None:
    """A process that can't even take its memory, and then another step."""
    world.turn(context_mib=100_000)
    run(tmp_path / "report.json", world.environ(), "--only", "copies", "machine")
    report = json.loads((tmp_path / "report.json").read_text())
    assert "failed" in report["copies"]
    assert report["machine"]["gpus"]
