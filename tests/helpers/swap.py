"""Swap for tests that need some: a file of their own, if we may."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

MIB = 2**20
_SHARED_BYTES = 3 * 1024 * MIB
"""For all test processes together: each works with a few small models."""


_PRIORITY = 100
"""Before other swap."""


class NoSwap(Exception):
    """None can be added here; the message says why."""


@contextmanager
def swap_file(size: int) -> Iterator[None]:
    """Have `size` bytes more of swap while the block lasts; raise NoSwap when that can't be."""
    path = _add(size)
    try:
        yield
    finally:
        _remove(path)


@pytest.fixture
def swap() -> Iterator[None]:
    """Enough swap for a few small models."""
    try:
        with _shared():
            yield
    except NoSwap as error:
        pytest.skip(f"no swap for this test: {error}")


@pytest.fixture
def little_swap() -> Iterator[None]:
    """Too little swap for any model, and no other."""
    with _lock("users") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        _remove_shared()
        if other_swap():
            pytest.skip("there is other swap, which can't be filled up for a test")
        try:
            with swap_file(4 * MIB):
                yield
        except NoSwap as error:
            pytest.skip(f"no swap for this test: {error}")


def other_swap() -> bool:
    """Whether there is swap already."""
    return bool(_in_use())


@contextmanager
def _shared() -> Iterator[None]:
    """Have the swap that all test processes share, which goes with the last of them.

    With a file for each, the end of one test would bring back what another one's process has in it,
    for the kernel spreads pages over all swap there is.
    """
    with _lock("users") as users:
        with _lock("door") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            if not _is_there():
                _note().write_text(str(_add(_SHARED_BYTES)))
        try:
            yield
        finally:
            with _lock("door") as door:
                fcntl.flock(door, fcntl.LOCK_EX)
                fcntl.flock(users, fcntl.LOCK_UN)
                with suppress(BlockingIOError):  # somebody else still uses it
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove_shared()


@contextmanager
def _lock(name: str) -> Iterator[IO[str]]:
    with (_folder() / f"{name}.lock").open("a") as lock:
        yield lock


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"llmsnap-tests-swap-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _note() -> Path:
    """Where the shared file's path is written down."""
    return _folder() / "shared"


def _is_there() -> bool:
    """Whether the shared file is; one from before a reboot is a file, but no swap."""
    return _note().exists() and _note().read_text() in _in_use()


def _remove_shared() -> None:
    if _is_there():
        _remove(Path(_note().read_text()))
    _note().unlink(missing_ok=True)


def _in_use() -> list[str]:
    """Return the paths of all swap of this machine."""
    return [line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()[1:]]


def _add(size: int) -> Path:
    """Make a file of `size` bytes swap; raise NoSwap."""
    if not all(map(shutil.which, ("mkswap", "swapon", "swapoff"))):
        raise NoSwap("mkswap and swapon aren't there")
    if os.geteuid():
        raise NoSwap("only root may add swap")
    number, name = tempfile.mkstemp(prefix="llmsnap-swap-")
    path = Path(name)
    try:
        os.posix_fallocate(number, 0, size)
        _run("mkswap", name)
        _run("swapon", "--priority", str(_PRIORITY), name)
    except (OSError, NoSwap) as error:
        path.unlink()
        raise NoSwap(str(error)) from error
    finally:
        os.close(number)
    return path


def _remove(path: Path) -> None:
    subprocess.run(["swapoff", str(path)], check=True)
    path.unlink()


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoSwap(done.stderr.strip())
