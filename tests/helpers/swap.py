"""Swap for tests that need some: a file of their own, if we may."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 2**20
_PRIORITY = 100
"""Before other swap, so that tests with files of their own don't get in each other's way."""


@contextmanager
def swap_file(size: int) -> Iterator[None]:
    """Have `size` bytes more of swap while the block lasts; skip the test when that can't be."""
    if not all(map(shutil.which, ("mkswap", "swapon", "swapoff"))):
        pytest.skip("no swap for this test: mkswap and swapon aren't there")
    if os.geteuid():
        pytest.skip("no swap for this test: only root may add some")
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
    if done.returncode and argv[0] != "swapoff":
        pytest.skip(f"no swap for this test: {done.stderr.strip()}")
    assert not done.returncode, done.stderr


@pytest.fixture
def swap() -> Iterator[None]:
    """Enough swap for a few small models."""
    with swap_file(1024 * MIB):
        yield
