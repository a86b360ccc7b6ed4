"""NvmlProbe in a process of its own, where LD_LIBRARY_PATH names the libraries it finds.

    python -m tests.sim.gauge PERIOD_S PATIENCE_S

answers each line on stdin with the readings as JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from llmsnap.memory.device import Readings
from llmsnap.memory.nvml import NvmlProbe

ROOT: Final = Path(__file__).parents[2]


def python_module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this repository, wherever it is run."""
    return [sys.executable, "-P", "-m", name, *arguments]


def with_repository(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` such that Python finds this repository's packages."""
    return {**environ, "PYTHONPATH": str(ROOT)}


class Gauge:
    """The probe of another process; the same to use as one of this process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    @classmethod
    async def start(
        cls,
        environ: Mapping[str, str],
        *,
        period_s: float = 2.0,
        patience_s: float = 1.0,
        wrapper: Sequence[str] = (),
    ) -> Gauge:
        """Start the process in `environ`, perhaps by way of a command such as unshare."""
        command = [*wrapper, *python_module("tests.sim.gauge", f"{period_s}", f"{patience_s}")]
        env = with_repository(environ)
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=env))

    async def read(self) -> Readings:
        """Return what the probe reads."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(b"\n")
            line = await self._process.stdout.readline()
        return msgspec.json.decode(line, type=Readings)

    async def aclose(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def main(period_s: float, patience_s: float) -> None:
    """Read whenever asked, until stdin ends."""
    probe = NvmlProbe(clock=time.monotonic, period_s=period_s, patience_s=patience_s)
    while await asyncio.to_thread(sys.stdin.readline):
        print(msgspec.json.encode(await probe.read()).decode(), flush=True)
    await probe.aclose()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), float(sys.argv[2])))
