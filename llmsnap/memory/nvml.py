"""How full NVIDIA GPUs are, read by a thread of its own: a call into the driver can stall."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pynvml

from llmsnap.memory.device import NO_DRIVER, Reading, Readings
from llmsnap.memory.nvml_vitals import read_vitals

logger = logging.getLogger(__name__)

_STALE_PERIODS: Final = 3
_INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""The inode that Linux gives the namespace of the machine itself."""

_FAULTS: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NO_DRIVER,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA driver isn't loaded; load it with `modprobe nvidia`, or see `dmesg` why not"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver was upgraded, and library and kernel module differ; reboot, "
        "or restart llmsnap if the new module is loaded"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "the NVIDIA driver refuses this user; it needs read and write access to /dev/nvidia*"
    ),
}

_INSTEAD: Final = "what a model needs is learned by the difference in use around its start"
"""How memory is told apart where the driver doesn't do it."""

_SESSION_LOST: Final = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)
"""Errors after which NVML must be initialised anew before anything can be read."""

_NO_SUCH_FORM: Final = (
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
)


class NvmlProbe:
    """Reads all GPUs when asked; figures that are old because the driver stalls are called stale.

    `clock` stamps the readings. `period_s` is how often one means to read: figures older than three
    of it are stale. `patience_s` is how long a caller waits for new ones.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        period_s: float = 2.0,
        patience_s: float = 1.0,
    ) -> None:
        self._clock = clock
        self._stale_after_s = _STALE_PERIODS * period_s
        self._patience_s = patience_s
        self._last: Readings | None = None
        self._last_at = 0.0
        self._news = threading.Condition()
        self._waiting: list[_Waiter] = []
        self._closing = False
        self._thread: threading.Thread | None = None

    async def read(self) -> Readings:
        """Return figures that were read after this call, or else the last ones; never raises."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        # The first call may have to wake the driver up, which takes seconds.
        patience_s = self._patience_s if self._last else self._stale_after_s + self._patience_s
        self._enlist(waiter)
        try:
            async with asyncio.timeout(patience_s):
                return await waiter.future
        except TimeoutError:
            return self._old_news(patience_s)
        finally:
            with self._news, suppress(ValueError):
                self._waiting.remove(waiter)

    async def aclose(self) -> None:
        """Let go of the driver; a stalled call isn't waited for."""
        with self._news:
            self._closing = True
            self._news.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, self._patience_s)

    def _enlist(self, waiter: _Waiter) -> None:
        with self._news:
            self._waiting.append(waiter)
            self._news.notify()
        if self._thread is None:
            # A daemon: a call that never returns must not keep the proxy from ending.
            self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        session = _Session(self._clock)
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._closing)
                waiting, self._waiting = self._waiting, []
                if self._closing:
                    break
            readings = _read_safely(session)
            self._last, self._last_at = readings, self._clock()
            for waiter in waiting:
                waiter.answer(readings)
        session.end()

    def _old_news(self, waited_s: float) -> Readings:
        if self._last is None:
            return Readings(fault=f"NVML hasn't answered for {waited_s:g} s; see `dmesg` for why")
        age_s = self._clock() - self._last_at
        if age_s <= self._stale_after_s:
            return self._last
        note = f"these figures are {age_s:.0f} s old: NVML doesn't answer; see `dmesg` for why"
        return replace(self._last, stale=True, notes=(*self._last.notes, note))


@dataclass(frozen=True, slots=True)
class _Waiter:
    """A caller on some event loop who wants the next figures."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Readings]

    def answer(self, readings: Readings) -> None:
        with suppress(RuntimeError):  # its loop is closed
            self.loop.call_soon_threadsafe(self._set, readings)

    def _set(self, readings: Readings) -> None:
        if not self.future.done():
            self.future.set_result(readings)


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU, as it was when NVML was initialised."""

    device: str
    handle: Any
    uuid: str
    name: str
    mig: bool


class _Session:
    """NVML from one initialisation to the next; it survives lost GPUs and reloaded drivers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._gpus: list[_Gpu] = []
        self._notes: list[str] = []
        self._open = False
        self._devices: dict[str, str] = {}
        """Device by UUID: what is `gpu1` stays so, though `gpu0` falls off the bus."""
        self._silent: dict[str, str] = {}
        """Why a driver doesn't tell bytes by process, by device."""

    def read(self) -> Readings:
        """Return all figures, or why there are none."""
        while True:
            was_open = self._open
            try:
                if not was_open:
                    self._begin()
                return self._read_all()
            except pynvml.NVMLError as error:
                self.end()
                if not was_open:
                    return Readings(fault=_fault(error))

    def end(self) -> None:
        """Let go of the driver; the next `read` begins anew."""
        if self._open:
            self._open = False
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _begin(self) -> None:
        pynvml.nvmlInit()
        self._open = True
        self._gpus, self._notes = [], []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                self._gpus.append(self._meet(index))
            except pynvml.NVMLError as error:
                self._notes.append(f"the GPU with index {index} can't be asked: {error}")

    def _meet(self, index: int) -> _Gpu:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        return _Gpu(
            device=self._device_of(uuid, index),
            handle=handle,
            uuid=uuid,
            name=pynvml.nvmlDeviceGetName(handle),
            mig=_is_split(handle),
        )

    def _device_of(self, uuid: str, index: int) -> str:
        while uuid not in self._devices:
            if (device := f"gpu{index}") not in self._devices.values():
                self._devices[uuid] = device
            index += 1
        return self._devices[uuid]

    def _read_all(self) -> Readings:
        readings, notes, lost = [], list(self._notes), bool(self._notes)
        for gpu in self._gpus:
            try:
                reading, note = self._read_one(gpu)
            except pynvml.NVMLError as error:
                if error.value in _SESSION_LOST:
                    raise
                notes.append(f"{gpu.device}: its memory can't be read: {error}")
                lost |= error.value not in _NO_SUCH_FORM
                continue
            readings.append(reading)
            if note:
                notes.append(f"{gpu.device}: {note}")
        if lost:  # perhaps it is back when NVML looks anew
            self.end()
        return Readings(devices=tuple(readings), notes=tuple(notes))

    def _read_one(self, gpu: _Gpu) -> tuple[Reading, str]:
        taken_at = self._clock()
        memory = _memory(gpu.handle)
        processes, note = self._listed(gpu)
        reading = Reading(
            device=gpu.device,
            total_bytes=memory.total,
            free_bytes=memory.free,
            taken_at=taken_at,
            name=gpu.name,
            uuid=gpu.uuid,
            processes=processes,
            mig=gpu.mig,
            reserved_bytes=getattr(memory, "reserved", None),
            vitals=read_vitals(gpu.handle),
        )
        return reading, note

    def _listed(self, gpu: _Gpu) -> tuple[dict[int, int] | None, str]:
        """Return bytes by pid, or None and why they aren't known.

        That nobody is listed says nothing of a driver which hasn't told of those who were.
        """
        processes, note = _processes(gpu)
        if processes is None:
            note = self._silent[gpu.device] = f"{note}; {_INSTEAD}"
        elif processes:
            self._silent.pop(gpu.device, None)
        elif note := self._silent.get(gpu.device, ""):
            return None, note
        return processes, note


def _read_safely(session: _Session) -> Readings:
    """Return what the session reads; at the root of the thread, where a bug must not end it."""
    try:
        return session.read()
    except Exception as error:
        logger.exception("reading NVML crashed")
        return Readings(fault=f"reading NVML crashed: {error!r}")


def _memory(handle: Any) -> Any:
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value not in _NO_SUCH_FORM:
            raise
        return pynvml.nvmlDeviceGetMemoryInfo(handle)


def _processes(gpu: _Gpu) -> tuple[dict[int, int] | None, str]:
    """Return bytes by pid, or None and why they aren't known."""
    if gpu.mig:
        return None, "it is split (MIG), so bytes by process aren't known"
    if not _pids_are_the_machines():
        return None, (
            "bytes by process aren't known: in a container the driver's pids mean nothing "
            "(unless it is started with `--pid=host`)"
        )
    try:
        listed = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu.handle)
    except pynvml.NVMLError as error:
        if error.value in _SESSION_LOST:
            raise
        return None, f"bytes by process aren't known: {error}"
    used: dict[int, int] = {}
    for process in listed:
        if process.usedGpuMemory is None:
            return None, "bytes by process aren't known: the driver doesn't tell them"
        used[process.pid] = used.get(process.pid, 0) + process.usedGpuMemory
    return used, ""


def _is_split(handle: Any) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:
        return False  # it is a card that can't be split
    return bool(current)


def _pids_are_the_machines() -> bool:
    """Whether pids mean the same to us as to the kernel's drivers, which know no namespaces."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return True


def _fault(error: Any) -> str:
    return _FAULTS.get(error.value, f"NVML can't be read: {error}")
