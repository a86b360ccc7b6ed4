"""Swap for tests that need some: a file of their own, if we may."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

MIB = 2**20
_PRIORITY = 100
"""Before other swap, so that tests with files of their own don't get in each other's way."""


class NoSwap(Exception):
    """None can be added here; the message says why."""


@contextmanager
def swap_file(size: int) -> Iterator[None]:
    """Have `size` bytes more of swap while the block lasts; raise NoSwap when that can't be."""
    if not all(map(shutil.which, ("mkswap", "swapon", "swapoff"))):
        raise NoSwap("mkswap and swapon aren't there")
    if os.geteuid():
        raise NoSwap("only root may add swap")
    number, name = tempfile.mkstemp(prefix="llmsnap-swap-")
    try:
        os.posix_fallocate(number, 0, size)
        os.close(number)
        _run("mkswap", name)
        _run("swapon", "--priority", str(_PRIORITY), name)
        try:
            yield
        finally:
            _run("swapoff", name)
    finally:
        Path(name).unlink()


def other_swap() -> bool:
    """Whether there is swap already."""
    return len(Path("/proc/swaps").read_text().splitlines()) > 1


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoSwap(done.stderr.strip())


@contextmanager
def _turn(mode: int) -> Iterator[None]:
    """Wait for tests of other processes: who needs a full swap can't have another one beside it."""
    path = Path(tempfile.gettempdir()) / f"llmsnap-tests-swap-{os.getuid()}.lock"
    with path.open("a") as lock:
        fcntl.flock(lock, mode)
        yield


def _for_a_test(size: int) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(swap_file(size))
        except NoSwap as error:
            pytest.skip(f"no swap for this test: {error}")
        yield


@pytest.fixture
def swap() -> Iterator[None]:
    """Enough swap for a few small models."""
    with _turn(fcntl.LOCK_SH):
        yield from _for_a_test(1024 * MIB)


@pytest.fixture
def little_swap() -> Iterator[None]:
    """Too little swap for any model, and no other."""
    with _turn(fcntl.LOCK_EX):
        if other_swap():
            pytest.skip("there is other swap, which can't be filled up for a test")
        yield from _for_a_test(4 * MIB)
