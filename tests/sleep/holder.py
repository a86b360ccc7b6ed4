"""A process with memory that a test can move, and check."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from llmsnap.memory.host import Host
from llmsnap.memory.kernel import Usage
from llmsnap.sleep.driver import Target
from llmsnap.sleep.madvise import Span

_PROGRAM = Path(__file__).parent.parent / "helpers" / "children" / "hold.py"
MIB = 2**20


@dataclass
class Holder:
    """A child that holds `span`."""

    process: Process
    span: Span

    @property
    def pid(self) -> int:
        """Its pid."""
        return self.process.pid

    @property
    def usage(self) -> Usage:
        """What it alone holds now."""
        return Host().usage([self.pid])

    @property
    def state(self) -> str:
        """Its state, as in `ps`."""
        return state(self.pid)

    async def checksum(self) -> int:
        """Let it read all that it holds."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(b"\n")
        return int(await self.process.stdout.readline())

    def target(self, *, port: int = 1, generation: int = 1) -> Target:
        """It, as a model's server."""
        return target(self.pid, port, generation=generation)


def target(pid: int, port: int, *, generation: int = 1) -> Target:
    """A model's server on loopback."""
    return Target(
        model="m",
        generation=generation,
        pid=pid,
        argv=(),
        env={},
        host="127.0.0.1",
        port=port,
        base_url=f"http://127.0.0.1:{port}",
    )


def state(pid: int) -> str:
    """The state of `pid`, as in `ps`; empty when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat[stat.rindex(")") + 2]


@asynccontextmanager
async def holding(
    mib: int, *flags: str, in_shell: bool = False, cgroup: Path | None = None
) -> AsyncIterator[Holder]:
    """Run a process that holds so much; it and its children are gone afterwards.

    `in_shell`: the child is a shell, and the process that holds the memory below it. `cgroup`: the
    folder of the one that it enters before it holds anything.
    """
    argv = [sys.executable, "-S", str(_PROGRAM), str(mib), *flags]
    if in_shell:
        argv = ["/bin/sh", "-c", f"{shlex.join(argv)}; true"]
    if cgroup is not None:
        argv = ["/bin/sh", "-c", f"echo $$ > {cgroup}/cgroup.procs && exec {shlex.join(argv)}"]
    process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout
        line = await process.stdout.readline()
        assert line, "it ended before it held anything"
        yield Holder(process, Span(int(line), mib * MIB))
    finally:
        for pid in Host().tree(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.communicate()


async def without_capability(script: str) -> str:
    """Return what a Python `script` prints that root runs without CAP_SYS_NICE."""
    process = await asyncio.create_subprocess_exec(
        *("setpriv", "--bounding-set=-sys_nice", sys.executable, "-c", script), stdout=PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()
