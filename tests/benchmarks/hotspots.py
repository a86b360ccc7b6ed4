"""Where the proxy's time goes while it relays: py-spy's samples, by part.

    python -m tests.benchmarks.hotspots

16 connections ask for short answers, as in `overhead`. A sample counts for the innermost Python
function; what C code takes (uvloop's reads and writes, the parsers) counts for the function that
called it. The shares hold on a busy machine too, the times wouldn't.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.benchmarks.load import post, run
from tests.benchmarks.overhead import CHAT, CONFIG, KEY, body, listening, running
from tests.helpers.ports import free_ports

PARTS = {
    "writes to sockets (system calls)": ("llmsnap/web/outbox",),
    "uvloop: waiting for sockets, reading them": ("asyncio/runners.py", "uvloop"),
    "the thread that writes the log": ("llmsnap/runtime/stdout",),
    "log line": ("llmsnap/web/accesslog", "llmsnap/runtime/logs", "llmsnap/app.py", "secrets.py"),
    "the client's connection: reading requests": ("llmsnap/web/express", "llmsnap/web/head."),
    "gate, errors": ("llmsnap/web/gate", "llmsnap/web/envelope"),
    "finding the model, filters": ("llmsnap/web/select", "llmsnap/web/body", "llmsnap/web/filters"),
    "lease and scheduler": ("llmsnap/runtime", "llmsnap/core"),
    "upstream connection": ("llmsnap/web/upstream", "llmsnap/web/courier", "llmsnap/web/order"),
    "telemetry: tokens, sums, rows": ("llmsnap/telemetry", "llmsnap/store", "sqlite"),
    "the thread that reads what memory holds": ("llmsnap/memory", "pathlib"),
    "the request's and the answer's way through our web layer": ("llmsnap/web",),
}

WAITING = ("Stdout._run ", "Condition.wait ", "_worker ", "_connection_worker_thread ")
"""Threads that sleep, which py-spy can't always tell from threads that work."""


def part_of(frame: str) -> str:
    """Return the part that a frame of py-spy, `function (file:line)`, belongs to."""
    for part, places in PARTS.items():
        if any(place in frame for place in places):
            return part
    return "the rest of Python"


def shares(samples: str) -> dict[str, float]:
    """Return the share of each part in py-spy's raw output: stacks with a count each."""
    counted: Counter[str] = Counter()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        innermost = stack.split(";")[-1]
        if not innermost.startswith(WAITING):
            counted[part_of(innermost)] += int(count)
    total = sum(counted.values())
    return {part: count / total for part, count in counted.most_common()}


async def sampled(seconds: float) -> str:
    """Return what py-spy saw of a proxy under load for so long."""
    first = free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        config, found = place / "config.yaml", place / "samples"
        config.write_text(CONFIG.format(key=KEY, port=first, python=sys.executable))
        serve = ["llmsnap", "--config", str(config), "--state-dir", str(place / "state")]
        address = ["--listen", f"127.0.0.1:{first + 1}"]
        with running(*serve, *address, log=place / "log") as proxy:
            await listening(first + 1)
            request = post(CHAT, body(900), key=KEY)
            await run(first + 1, request, connections=16, seconds=0.5)
            spy = [
                str(Path(sys.executable).with_name("py-spy")),
                "record",
                "--pid",
                str(proxy.pid),
                "--format",
                "raw",
                "--rate",
                "400",
            ]
            spy += ["--duration", str(round(seconds)), "--output", str(found)]
            watching = await asyncio.create_subprocess_exec(
                *spy, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            await run(first + 1, request, connections=16, seconds=seconds + 1)
            await watching.wait()
        return found.read_text()


def main() -> None:
    """Sample and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    print("| part | share |\n|---|---|")
    for part, share in shares(asyncio.run(sampled(options.seconds))).items():
        print(f"| {part} | {share:.0%} |")


if __name__ == "__main__":
    main()
