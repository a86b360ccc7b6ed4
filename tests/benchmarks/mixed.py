"""Mixed work on simulated time: llmsnap's own scheduler beside the rules of other proxies.

    python -m tests.benchmarks.mixed [--hosts home …] [--seeds 3] [--requests 2000] [--json]

Four machines with more models than fit, three kinds of work each (one person alone; a crowd at
half and at nine tenths of what one stream of answers could do), the same requests for each
scheduler; see `traces` and `machine`. Every figure is the mean of the seeds. The rivals: one model
at a time, stopped and started, or with the same sleep as ours; and as many as fit, with the least
recently used making room. The goals, on `home` at half load: at most half the swaps of one at a
time with sleep, at most half its mean wait, and a longest wait below those of all rivals.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from llmsnap.core.constraints import Free
from llmsnap.core.schedule import Schedule
from llmsnap.core.scheduler import Scheduler
from tests.benchmarks.machine import HOSTS, Decides, Figures, Host, Machine
from tests.benchmarks.rivals import LeastRecentlyUsed, OneAtATime, Rival
from tests.benchmarks.traces import Visit, crowd, one_person

ALONE: Final = "alone"
LOADS: Final = (ALONE, "0.5", "0.9")
STOPPING: Final = "one at a time, stop/start"
SLEEPING: Final = "one at a time, sleep/wake"
LRU: Final = "LRU that fits"
OURS: Final = "llmsnap"
GOAL_AT: Final = ("home", "0.5")
COLUMNS: Final = ("mean", "p50", "p95", "p99", "longest", "swaps", "lost")


@dataclass(frozen=True, slots=True)
class Job:
    """One scheduler on one host with one trace."""

    host: str
    load: str
    scheduler: str
    seed: int
    requests: int


def visits(job: Job) -> list[Visit]:
    """Return the trace, which depends on all but the scheduler."""
    names = [model.spec.name for model in HOSTS[job.host]().models]
    if job.load == ALONE:
        return one_person(job.seed, names, job.requests // 2)
    return crowd(job.seed, names, job.requests, float(job.load))


def play(job: Job) -> Figures:
    """Run one job."""
    host = HOSTS[job.host]()
    if job.scheduler == STOPPING:
        host = host.without_sleep()
    machine = Machine(host)
    scheduler = _SCHEDULERS[job.scheduler](host, lambda: machine.now)
    return machine.play(scheduler, visits(job))


def _ours(host: Host, clock: Callable[[], float]) -> Decides:
    return Scheduler(
        [model.spec for model in host.models],
        capacity=host.capacity,
        tiers={"ram": host.ram},
        schedule=Schedule(max_wait_s=0),
        constraints=Free(),
        clock=clock,
    )


def _rival(kind: type[Rival], host: Host, clock: Callable[[], float]) -> Decides:
    return kind([model.spec for model in host.models], host.capacity, host.ram, clock)


_SCHEDULERS: Final[Mapping[str, Callable[[Host, Callable[[], float]], Decides]]] = {
    STOPPING: partial(_rival, OneAtATime),
    SLEEPING: partial(_rival, OneAtATime),
    LRU: partial(_rival, LeastRecentlyUsed),
    OURS: _ours,
}

Means = dict[tuple[str, str, str], dict[str, float]]
"""By host, load and scheduler: the mean of each figure."""


def measure(hosts: Sequence[str], seeds: int, requests: int) -> Means:
    """Play everything, on as many cores as there are."""
    jobs = [
        Job(host, load, scheduler, seed, requests)
        for host in hosts
        for load in LOADS
        for scheduler in _SCHEDULERS
        for seed in range(seeds)
    ]
    summaries: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    with ProcessPoolExecutor() as pool:
        for job, figures in zip(jobs, pool.map(play, jobs), strict=True):
            summaries.setdefault((job.host, job.load, job.scheduler), []).append(figures.summary())
    return {
        key: {name: statistics.fmean(each[name] for each in found) for name in found[0]}
        for key, found in summaries.items()
    }


def table(means: Means) -> str:
    """Return a Markdown table."""
    lines = [
        "| host, load | scheduler | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for (host, load, scheduler), figures in means.items():
        cells = [f"{figures[name]:.1f}" for name in COLUMNS[:-2]]
        cells += [f"{figures['swaps']:.0f}", f"{figures['lost']:.0%}"]
        lines.append(f"| {host} {load} | {scheduler} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdicts(means: Means) -> list[str]:
    """Return each goal with what was reached."""
    half = {s: figures for (host, load, s), figures in means.items() if (host, load) == GOAL_AT}
    if not half:
        return []
    ours, fifo = half[OURS], half[SLEEPING]
    swaps, wait = fifo["swaps"] / ours["swaps"], ours["mean"] / fifo["mean"]
    longest = min(half[rival]["longest"] for rival in (STOPPING, SLEEPING, LRU))
    return [
        f"{swaps:.1f} times fewer swaps than {SLEEPING} (goal: 2): {_word(swaps >= 2)}",
        f"{wait:.0%} of its mean wait (goal: 50%): {_word(wait <= 0.5)}",
        f"longest wait {ours['longest']:.1f} s, the rivals' shortest is {longest:.1f} s: "
        f"{_word(ours['longest'] < longest)}",
    ]


def _word(reached: bool) -> str:
    return "reached" if reached else "NOT REACHED"


def main() -> None:
    """Measure, and print a table with the verdicts, or the means as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", nargs="+", choices=HOSTS, default=list(HOSTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    means = measure(options.hosts, options.seeds, options.requests)
    if options.json:
        rows = [
            {"host": host, "load": load, "scheduler": scheduler, **figures}
            for (host, load, scheduler), figures in means.items()
        ]
        json.dump(rows, sys.stdout, indent=2)
        print()
        return
    print(f"Mean of {options.seeds} seeds; waits in seconds.\n\n{table(means)}\n")
    print("\n".join(verdicts(means)))


if __name__ == "__main__":
    main()
