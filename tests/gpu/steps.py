"""The steps of the GPU report: each measures one thing and returns it as plain values."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from llmsnap.memory.device import Reading
from llmsnap.memory.host import Host
from llmsnap.memory.nvml import NvmlProbe
from llmsnap.sleep.cuda import CudaDriver
from llmsnap.sleep.cuda_client import CudaClient, Worker
from llmsnap.sleep.driver import Moved, Target, Unsupported
from llmsnap.sleep.eligibility import read_kernel
from tests.gpu.holder import Holder
from tests.helpers.ports import free_port
from tests.sim.gauge import ROOT, python_module, with_repository

GIB: Final = 1024**3
NOBODY: Final = 65534


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks for."""

    environ: Mapping[str, str]
    gib: list[float]
    cycles: int
    only: list[str]
    llama_server: Path | None = None
    model: Path | None = None


async def machine(_: Options) -> dict[str, Any]:
    """What this is: figures mean little without it."""
    kernel = read_kernel()
    async with gpu_probe() as probe:
        readings = await probe.read()
    files = {
        "huge_pages": "/sys/kernel/mm/transparent_hugepage/enabled",
        "ptrace_scope": "/proc/sys/kernel/yama/ptrace_scope",
        "numa_nodes": "/sys/devices/system/node/online",
    }
    host = Host()
    return {
        "kernel": platform.release(),
        "driver": kernel.driver,
        "open_module": kernel.has_open_module,
        "gpus": [_described(gpu) for gpu in readings.devices],
        "notes": readings.notes,
        "cores": os.cpu_count(),
        "uid": os.getuid(),
        "ram_gib": _gib(host.ram().total_bytes),
        "ram_free_gib": _gib(host.ram().free_bytes),
        "swap_gib": _gib(host.swap().total_bytes),
        **{name: _text(path) for name, path in files.items()},
    }


async def caller(options: Options) -> dict[str, Any]:
    """What the process that makes the calls costs: time, GPU memory, a place in NVML's list."""
    async with gpu_probe() as probe:
        before = (await probe.read()).devices[0]
        cold_s, worker = await _first_hello(options.environ)
        hello, pid = await worker.hello(), worker.pid
        after = (await probe.read()).devices[0]
        async with held(options.environ, 64) as holder:
            warm = [await _timed_state(worker, holder.pid) for _ in range(5)]
            second_s, other = await _first_hello(options.environ)
            fresh_s = second_s + await _timed_state(other, holder.pid)
    await worker.aclose()
    await other.aclose()
    return {
        "cuda_version": hello.version,
        "missing": hello.missing,
        "first_start_s": round(cold_s, 3),
        "init_s": round(hello.init_s, 3),
        "query_by_long_lived_s": round(min(warm), 5),
        "query_by_fresh_process_s": round(fresh_s, 3),
        "gpu_mib": (before.free_bytes - after.free_bytes) // 1024**2,
        "is_listed": None if after.processes is None else pid in after.processes,
    }


async def cycles(options: Options, gib: float) -> dict[str, Any]:
    """One size put to sleep and woken again and again, every byte compared each time."""
    return await _cycles_of(gib, options, options.environ)


async def huge_pages(options: Options) -> dict[str, Any]:
    """The middle size once more, with a C library that asks for huge pages."""
    environ = {**options.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    return await _cycles_of(sorted(options.gib)[len(options.gib) // 2], options, environ)


async def copies(options: Options) -> dict[str, Any]:
    """What plain copies reach on this machine, for comparison."""
    async with held(options.environ, 0) as holder:
        return await holder.do("rates", mib=int(min(2.0, max(options.gib)) * 1024))


async def contract(options: Options) -> dict[str, Any]:
    """The same tests that hold for the simulated driver, on this one."""
    if find_spec("pytest") is None:
        return {"skipped": "pytest isn't installed"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-q", "-m", "gpu"]
    process = await asyncio.create_subprocess_exec(
        *command, "tests/sim/test_contract.py", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        output = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\S+)", output, re.MULTILINE)
    return {name: outcome.lower() for outcome, name in outcomes} or {"skipped": "no real GPU"}


async def other_user(options: Options) -> dict[str, Any]:
    """Whether it goes without root, and on processes of somebody else."""
    if os.getuid():
        return {"skipped": "it takes root to become somebody else"}
    async with held(options.environ, 64) as holder:
        order = f'{{"id": 1, "op": "state", "pid": {holder.pid}}}\n'
        across = await _as_nobody(python_module("llmsnap.sleep.cuda_helper"), order, options)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        out = f"{folder}/report.json"
        arguments = ["--only", "cycles", "--gib", "0.25", "--cycles", "1", "--out", out]
        own = await _as_nobody(python_module("tests.gpu.report", *arguments), "", options)
    return {"state_of_a_process_of_root": across[-1:], "cycle_of_its_own": own[-1:]}


async def proxy(options: Options) -> dict[str, Any]:
    """Two models that don't fit together behind the real proxy, asked in turn."""
    from tests.gpu.swaps import swaps

    return await swaps(options.environ, gib=min(options.gib), rounds=options.cycles)


async def llama(options: Options) -> dict[str, Any]:
    """A real llama-server: its conversation must be in its cache after each wake."""
    if options.llama_server is None or options.model is None:
        return {"skipped": "give --llama-server and --model"}
    from tests.gpu.llama import conversation

    async with gpu_driver(options.environ) as (driver, _):
        return await conversation(driver, options.llama_server, options.model, options.cycles)


async def _cycles_of(gib: float, options: Options, environ: Mapping[str, str]) -> dict[str, Any]:
    async with (
        held(environ, int(gib * 1024)) as holder,
        gpu_driver(options.environ) as (driver, probe),
    ):
        target = target_of(holder.pid, environ)
        verdict = await driver.probe(target)  # starts all that is started once
        if isinstance(verdict, Unsupported):
            return {"unsupported": verdict.reason}
        rows = [await _cycle(driver, probe, holder, target) for _ in range(options.cycles)]
    return {"gib": gib, "tier_bytes": verdict.tier_bytes, "cycles": rows}


async def _cycle(
    driver: CudaDriver, probe: NvmlProbe, holder: Holder, target: Target
) -> dict[str, Any]:
    host = Host()
    awake, ram_awake = (await probe.read()).devices[0], host.ram().free_bytes
    slept = await driver.sleep(target)
    asleep, ram_asleep = (await probe.read()).devices[0], host.ram().free_bytes
    rss = host.usage([holder.pid]).rss_bytes
    woken = await driver.wake(target)
    check = await holder.do("check")
    return {
        "sleep_s": round(slept.seconds, 3),
        "sleep_gb_s": _rate(slept),
        "wake_s": round(woken.seconds, 3),
        "wake_gb_s": _rate(woken),
        "gpu_freed_gib": _gib(asleep.free_bytes - awake.free_bytes),
        "listed_asleep": None if asleep.processes is None else holder.pid in asleep.processes,
        "rss_asleep_gib": _gib(rss),
        "ram_taken_gib": _gib(ram_awake - ram_asleep),
        "whole": check["whole"],
        "check_s": check["seconds"],
    }


@asynccontextmanager
async def held(environ: Mapping[str, str], mib: int) -> AsyncIterator[Holder]:
    """Give a process that holds `mib`; kill it afterwards, for it may be asleep."""
    holder = await Holder.start(environ, mib=mib)
    try:
        yield holder
    finally:
        await holder.kill()


@asynccontextmanager
async def gpu_probe() -> AsyncIterator[NvmlProbe]:
    """Give NVML, as the proxy reads it."""
    probe = NvmlProbe(clock=time.monotonic)
    try:
        yield probe
    finally:
        await probe.aclose()


@asynccontextmanager
async def gpu_driver(environ: Mapping[str, str]) -> AsyncIterator[tuple[CudaDriver, NvmlProbe]]:
    """Give the driver, as the proxy builds it."""
    async with gpu_probe() as probe:
        client = CudaClient(environ=environ)
        driver = CudaDriver(client, gpus=probe, host=Host(), clock=time.monotonic)
        try:
            yield driver, probe
        finally:
            await driver.aclose()


def target_of(pid: int, environ: Mapping[str, str], port: int = 0) -> Target:
    """Return `pid` as a model's server."""
    port = port or free_port()
    return Target(
        model=f"pid-{pid}",
        generation=1,
        pid=pid,
        argv=(),
        env=environ,
        host="127.0.0.1",
        port=port,
        base_url=f"http://127.0.0.1:{port}",
    )


async def _first_hello(environ: Mapping[str, str]) -> tuple[float, Worker]:
    worker = Worker(environ, hello_timeout_s=60)
    begun = time.monotonic()
    await worker.hello()
    return time.monotonic() - begun, worker


async def _timed_state(worker: Worker, pid: int) -> float:
    begun = time.monotonic()
    await worker.ask("state", pid, deadline_s=30)
    return time.monotonic() - begun


async def _as_nobody(command: list[str], said: str, options: Options) -> list[str]:
    def run() -> list[str]:
        done = subprocess.run(
            command,
            input=said.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=with_repository({**options.environ, "HOME": "/tmp"}),
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
            timeout=25,
        )
        return done.stdout.decode(errors="replace").splitlines()

    return await asyncio.to_thread(run)


def _described(gpu: Reading) -> dict[str, Any]:
    return {
        "name": gpu.name,
        "total_gib": _gib(gpu.total_bytes),
        "free_gib": _gib(gpu.free_bytes),
        "tells_bytes_by_process": gpu.processes is not None,
        "mig": gpu.mig,
    }


def _rate(moved: Moved) -> float:
    return round(abs(moved.bytes["ram"]) / moved.seconds / 1e9, 2)


def _gib(size: int) -> float:
    return round(size / GIB, 3)


def _text(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""
