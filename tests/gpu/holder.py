"""A process that holds GPU memory, and can say whether each byte of it is as it was.

    python -m tests.gpu.holder

Each line on stdin is a command as JSON, each line on stdout its answer. It uses nothing but
libcuda, so the simulated one does as well.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import random
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from llmsnap.sleep.cuda_selftest import CudaError, Device
from tests.sim.gauge import python_module, with_repository

MIB: Final = 1024**2
_CHUNK: Final = 32 * MIB
_SCRATCH: Final = 1024 * MIB
_QUEUE: Final = 512
"""Calls that surely fit the GPU's queue of work."""


class Holder:
    """The other side of such a process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid = process.pid

    @classmethod
    async def start(
        cls, environ: Mapping[str, str], *, mib: int = 0, wrapper: Sequence[str] = ()
    ) -> Holder:
        """Start one that takes `mib` of GPU memory beside its context, perhaps below another."""
        command = [*wrapper, *python_module("tests.gpu.holder")]
        env = with_repository(environ)
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=env)
        holder = cls(process)
        assert "error" not in await holder.do("take", mib=mib)
        return holder

    async def do(self, what: str, *, within_s: float = 60.0, **arguments: float) -> dict[str, Any]:
        """Let it do one thing and return its answer; raise TimeoutError, EOFError when it dies."""
        self.tell(what, **arguments)
        async with asyncio.timeout(within_s):
            return await self.answer()

    def tell(self, what: str, **arguments: float) -> None:
        """Let it do one thing; its answer comes in turn."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")

    async def answer(self) -> dict[str, Any]:
        """Return the next answer."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise EOFError("the holder died")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def is_whole(self) -> bool:
        """Whether each byte is as it was."""
        return bool((await self.do("check"))["whole"])

    async def kill(self) -> int:
        """End it, and one below it, and return its exit code."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        return await self.process.wait()


class Memory:
    """What the process holds: chunks of noise, each with its number at the front."""

    def __init__(self) -> None:
        self._device = Device()
        self._chunks: list[int] = []
        self._noise = ctypes.create_string_buffer(random.Random(42).randbytes(_CHUNK), _CHUNK)
        self._copy = ctypes.create_string_buffer(_CHUNK)
        self._scratch = 0

    def take(self, mib: int) -> dict[str, Any]:
        """Take and fill `mib` more, rounded up to whole chunks."""
        for _ in range(-(-mib * MIB // _CHUNK)):
            self._set_number(len(self._chunks))
            self._chunks.append(self._device.take(_CHUNK))
            address, size = ctypes.c_uint64(self._chunks[-1]), ctypes.c_size_t(_CHUNK)
            self._device.call("cuMemcpyHtoD_v2", address, self._noise, size)
        return {}

    def spread(self, mib: int) -> dict[str, Any]:
        """Take `mib` of the second GPU too."""
        second = Device(1)
        second.take(mib * MIB)
        self._device.attach()
        return {}

    def fill(self, keep_mib: int) -> dict[str, Any]:
        """Take what is left of the GPU but about `keep_mib`, and leave it as it is."""
        spare = self._device.take(keep_mib * MIB)
        size, taken = 1024 * MIB, 0
        while size >= 16 * MIB:
            try:
                self._device.take(size)
                taken += size
            except CudaError:
                size //= 2
        self._device.call("cuMemFree_v2", ctypes.c_uint64(spare))
        return {"mib": taken // MIB}

    def check(self) -> dict[str, Any]:
        """Compare each byte with what it was."""
        spoiled = [number for number in range(len(self._chunks)) if not self._is_whole(number)]
        return {"whole": not spoiled, "chunks": len(self._chunks), "spoiled": spoiled}

    def work(self, seconds: float) -> dict[str, Any]:
        """Give the GPU about `seconds` of work."""
        self._set_scratch()
        self.synchronise()
        count = int(seconds / min(self._piece_of_work() for _ in range(5))) + 1
        for _ in range(min(count, _QUEUE)):
            self._set_scratch()
        rest = threading.Thread(target=self._work_on, args=(count - _QUEUE,), daemon=True)
        rest.start()
        return {"calls": count}

    def synchronise(self) -> dict[str, Any]:
        """Wait for the GPU, as a server does first when a request comes."""
        self._device.call("cuCtxSynchronize")
        return {}

    def manage(self, mib: int) -> dict[str, Any]:
        """Take memory that the driver moves about by itself, which rules checkpoints out."""
        address = ctypes.c_uint64()
        size, attach_global = ctypes.c_size_t(mib * MIB), ctypes.c_uint(1)
        self._device.call("cuMemAllocManaged", ctypes.byref(address), size, attach_global)
        return {}

    def rates(self, mib: int) -> dict[str, Any]:
        """Return GB/s of plain copies, each the better one of two."""
        size = mib * MIB
        pinned = ctypes.c_void_p()
        self._device.call("cuMemAllocHost_v2", ctypes.byref(pinned), ctypes.c_size_t(size))
        pageable = ctypes.create_string_buffer(size)
        address, length = ctypes.c_uint64(self._device.take(size)), ctypes.c_size_t(size)
        rates: dict[str, Any] = {}
        for kind, host in (("pinned", pinned), ("pageable", pageable)):
            for way, function, ends in (
                ("to_gpu", "cuMemcpyHtoD_v2", (address, host)),
                ("from_gpu", "cuMemcpyDtoH_v2", (host, address)),
            ):
                seconds = min(self._timed(function, *ends, length) for _ in range(2))
                rates[f"{kind}_{way}_gb_s"] = round(size / seconds / 1e9, 2)
        self._device.call("cuMemFree_v2", address)
        return rates

    def _timed(self, function: str, *arguments: object) -> float:
        begun = time.perf_counter()
        self._device.call(function, *arguments)
        return time.perf_counter() - begun

    def _piece_of_work(self) -> float:
        begun = time.perf_counter()
        self._set_scratch()
        self.synchronise()
        return time.perf_counter() - begun

    def _work_on(self, count: int) -> None:
        self._device.attach()
        for _ in range(count):
            self._set_scratch()

    def _set_scratch(self) -> None:
        self._scratch = self._scratch or self._device.take(_SCRATCH)
        address, size = ctypes.c_uint64(self._scratch), ctypes.c_size_t(_SCRATCH)
        self._device.call("cuMemsetD8Async", address, ctypes.c_ubyte(0), size, None)

    def _is_whole(self, number: int) -> bool:
        self._set_number(number)
        address, size = ctypes.c_uint64(self._chunks[number]), ctypes.c_size_t(_CHUNK)
        self._device.call("cuMemcpyDtoH_v2", self._copy, address, size)
        return not ctypes.CDLL(None).memcmp(self._copy, self._noise, size)

    def _set_number(self, number: int) -> None:
        ctypes.memmove(self._noise, number.to_bytes(8, "little"), 8)


def main() -> None:
    """Do what stdin says until it ends."""
    memory = Memory()
    does: dict[str, Callable[..., dict[str, Any]]] = {
        "take": memory.take,
        "spread": memory.spread,
        "fill": memory.fill,
        "check": memory.check,
        "work": memory.work,
        "synchronise": memory.synchronise,
        "manage": memory.manage,
        "rates": memory.rates,
    }
    for line in sys.stdin:
        command = json.loads(line)
        begun = time.perf_counter()
        try:
            answer = does[command.pop("do")](**command)
        except CudaError as error:
            answer = {"error": str(error)}
        answer["seconds"] = round(time.perf_counter() - begun, 4)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
