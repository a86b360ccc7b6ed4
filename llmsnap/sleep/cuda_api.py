"""The few C functions of NVIDIA's driver that sleeping needs, and what their results mean.

Nothing here may be called in the proxy's own process: a call can hang for ever, or crash.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from enum import IntEnum
from typing import Final

FIRST_VERSION: Final = 12080
"""What cuDriverGetVersion must be at least: CUDA 12.8, which came with driver 570."""

FUNCTIONS: Final = (
    "cuCheckpointProcessGetState",
    "cuCheckpointProcessLock",
    "cuCheckpointProcessCheckpoint",
    "cuCheckpointProcessRestore",
    "cuCheckpointProcessUnlock",
)

_LIBRARY: Final = "libcuda.so.1"
_IN_CONTAINERS: Final = "/usr/local/nvidia/lib64/libcuda.so.1"


class Result(IntEnum):
    """Result codes, with what they were seen to mean in checkpoint calls."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    """A restore with too little free memory (it can never be restored then), or MIG."""
    NOT_INITIALIZED = 3
    """The process has no CUDA context, or is a zombie."""
    NO_DEVICE = 100
    INVALID_DEVICE = 101
    INVALID_CONTEXT = 201
    OPERATING_SYSTEM = 304
    """No such pid, no permission, it died meanwhile, or a restore after one that failed."""
    ILLEGAL_STATE = 401
    """The call doesn't fit the state; nothing was done."""
    NOT_READY = 600
    """The lock wasn't had in time; nothing was done."""
    NOT_PERMITTED = 800
    NOT_SUPPORTED = 801
    """Managed memory, or a processor that this driver can't do it on."""
    SYSTEM_DRIVER_MISMATCH = 803
    UNKNOWN = 999


class ProcessState(IntEnum):
    """What a process may be in; legal ways: lock, checkpoint, restore, unlock, in this order."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3
    CHECKPOINTING = 4
    """Since CUDA 13.4."""
    RESTORING = 5
    """Since CUDA 13.4."""


def result_name(code: int) -> str:
    """Return the name that the header gives a result code."""
    with suppress(ValueError):
        name = Result(code).name
        return f"CUDA_{name}" if code == Result.SUCCESS else f"CUDA_ERROR_{name}"
    return f"CUDA result {code}"


def state_name(state: int) -> str:
    """Return a word for a state, also for one that is newer than this program."""
    with suppress(ValueError):
        return ProcessState(state).name.lower()
    return f"in state {state}"


class LockArgs(ctypes.Structure):
    """CUcheckpointLockArgs: 64 bytes in every version of the API."""

    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


def load() -> ctypes.CDLL:
    """Return libcuda; raise OSError where there is none."""
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        with suppress(OSError):
            return ctypes.CDLL(_IN_CONTAINERS)
        raise


class CheckpointApi:
    """The calls, with Python's types. All block until done; all but `version` return a result."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @property
    def missing(self) -> tuple[str, ...]:
        """The functions that this driver is too old to have."""
        return tuple(name for name in FUNCTIONS if not hasattr(self._library, name))

    def init(self) -> int:
        """Initialise the driver; it creates no context and takes no memory of a GPU."""
        return int(self._library.cuInit(0))

    def version(self) -> int:
        """Return the CUDA version of the driver, as 13000 for 13.0; 0 when it doesn't tell."""
        version = ctypes.c_int(0)
        self._library.cuDriverGetVersion(ctypes.byref(version))
        return version.value

    def name(self, code: int) -> str:
        """Return the driver's own name for a result code, else ours."""
        text = ctypes.c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
            return text.value.decode()
        return result_name(code)

    def state(self, pid: int) -> tuple[int, int | None]:
        """Return a result and, when that is 0, the state; blocks behind a running operation."""
        state = ctypes.c_int(-1)
        result = int(self._library.cuCheckpointProcessGetState(pid, ctypes.byref(state)))
        return result, None if result else state.value

    def lock(self, pid: int, timeout_ms: int) -> int:
        """Keep the process from calling CUDA; 0 ms waits without end for its work to be done."""
        args = LockArgs(timeout_ms=timeout_ms)
        return int(self._library.cuCheckpointProcessLock(pid, ctypes.byref(args)))

    def checkpoint(self, pid: int) -> int:
        """Copy its memory on all GPUs into its own RAM and give the GPUs back."""
        return int(self._library.cuCheckpointProcessCheckpoint(pid, None))

    def restore(self, pid: int) -> int:
        """Take the GPUs' memory again; out of memory leaves the process useless for good."""
        return int(self._library.cuCheckpointProcessRestore(pid, None))

    def unlock(self, pid: int) -> int:
        """Let the process call CUDA again."""
        return int(self._library.cuCheckpointProcessUnlock(pid, None))
