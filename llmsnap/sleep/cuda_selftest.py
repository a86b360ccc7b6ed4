"""A small process of our own put to sleep and woken, to see whether this driver really can.

    python -m llmsnap.sleep.cuda_selftest MIB

takes that much GPU memory, prints `ready`, and answers each line on stdin with `whole` or
`spoiled`.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from typing import Final

from llmsnap.errors import SleepFailed, WakeFailed
from llmsnap.sleep.cuda_api import load, result_name
from llmsnap.sleep.cuda_client import CudaClient, process_environment
from llmsnap.sleep.cuda_steps import Limits, Steps

_MODULE: Final = "llmsnap.sleep.cuda_selftest"
_MIB: Final = 1024**2
_SIZE_MIB: Final = 64
_START_S: Final = 30.0


class CudaError(Exception):
    """A call into CUDA failed; the message names call and result."""


class Device:
    """One of the GPUs that this process can use: memory to take, write and read."""

    def __init__(self, ordinal: int = 0) -> None:
        self.library = load()
        self.call("cuInit", 0)
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.attach()

    def attach(self) -> None:
        """Let the calling thread use the GPU; the one that made this need not ask."""
        self.call("cuCtxSetCurrent", self._context)

    def call(self, function: str, *arguments: object) -> None:
        """Call a function of libcuda; raise CudaError unless it succeeds."""
        result = int(getattr(self.library, function)(*arguments))
        if result:
            raise CudaError(f"{function}: {result_name(result)}")

    def take(self, size: int) -> int:
        """Return the address of `size` new bytes on the GPU."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def write(self, address: int, content: bytes) -> None:
        """Copy `content` to the GPU."""
        size = ctypes.c_size_t(len(content))
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), content, size)

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes from the GPU."""
        content = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", content, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return content.raw


async def self_test(
    client: CudaClient, *, environ: Mapping[str, str], gpu_uuid: str, limits: Limits | None = None
) -> str:
    """Return what goes wrong with a small process on one GPU; empty when all goes well.

    It takes 64 MiB and a context there. The answer holds for one version of the driver.
    """
    limits = limits or Limits()
    command = [sys.executable, "-P", "-m", _MODULE, str(_SIZE_MIB)]
    env = {**process_environment(environ), "CUDA_VISIBLE_DEVICES": gpu_uuid}
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=env)
    try:
        async with asyncio.timeout(_START_S):
            if await _answer(process) != "ready":
                return "the test process can't use the GPU"
        await _cycle(Steps(client, limits), process.pid)
        async with asyncio.timeout(limits.call_s):
            return "" if await _answer(process, ask=True) == "whole" else "it came back spoiled"
    except TimeoutError:
        return "the test process hangs"
    except (SleepFailed, WakeFailed) as failure:
        return str(failure)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _cycle(steps: Steps, pid: int) -> None:
    size = _SIZE_MIB * _MIB
    await steps.lock(pid)
    await steps.checkpoint(pid, size)
    await steps.restore(pid, size)
    await steps.unlock(pid)


async def _answer(process: Process, *, ask: bool = False) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    if ask:
        process.stdin.write(b"\n")
    return (await process.stdout.readline()).decode().strip()


def main(mib: int) -> None:
    """Hold a pattern in GPU memory and say whether it is whole, until stdin ends."""
    pattern = bytes(range(256)) * (mib * _MIB // 256)
    try:
        device = Device()
        address = device.take(len(pattern))
        device.write(address, pattern)
    except (CudaError, OSError) as error:
        sys.exit(str(error))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        whole = device.read(address, len(pattern)) == pattern
        sys.stdout.write("whole\n" if whole else "spoiled\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
