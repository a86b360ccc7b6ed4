"""What each dependency costs: import time, resident memory, bytes on disk.

    python -m tests.benchmarks.imports

Each import runs in an interpreter of its own; the time is the median of five. What a library
imports in its turn is counted with it, so the columns don't add up.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

# Import name → distribution.
DEPENDENCIES = {
    "aiohttp": "aiohttp",
    "uvloop": "uvloop",
    "yaml": "PyYAML",
    "httptools": "httptools",
    "msgspec": "msgspec",
    "click": "click",
    "prometheus_client": "prometheus-client",
    "pynvml": "nvidia-ml-py",
    "psutil": "psutil",
    "aiosqlite": "aiosqlite",
    "rich.console": "rich",
}

PROBE = """
import resource, time
def rss(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before, began = rss(), time.perf_counter()
import {module}
print(time.perf_counter() - began, rss() - before)
"""


def cost(module: str, *, runs: int = 5) -> tuple[float, float]:
    """Return the median milliseconds and MiB that importing `module` takes."""
    seconds, grown = [], []
    for _ in range(runs):
        probe = [sys.executable, "-c", PROBE.format(module=module)]
        printed = subprocess.run(probe, check=True, capture_output=True, text=True).stdout.split()
        seconds.append(float(printed[0]))
        grown.append(int(printed[1]))
    return statistics.median(seconds) * 1e3, statistics.median(grown) / 2**20


def size_mib(distribution: str) -> float:
    """Return the installed size of `distribution`, without what it depends on."""
    listed = files(distribution) or []
    paths = [Path(str(path.locate())) for path in listed if path.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.exists()) / 2**20


def main() -> None:
    """Print a Markdown table."""
    print("| import | ms | MiB resident | MiB on disk |\n|---|---|---|---|")
    for module, distribution in DEPENDENCIES.items():
        milliseconds, grown = cost(module)
        print(f"| `{module}` | {milliseconds:.0f} | {grown:.1f} | {size_mib(distribution):.1f} |")


if __name__ == "__main__":
    main()
