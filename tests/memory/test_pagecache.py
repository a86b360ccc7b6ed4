"""How much of a file is in the page cache, against what mincore says."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmsnap.memory.pagecache import cached_bytes
from tests.helpers.pagecache import drop, resident_bytes, write_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells")

MIB = 1024**2


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """A file of 4 MiB and a bit that is in the cache, open for reading."""
    path = write_file(tmp_path / "file", 4 * MIB + 10)
    fd = os.open(path, os.O_RDONLY)
    if cached_bytes(fd, 0, 1) is None:
        pytest.skip("this kernel doesn't tell")
    yield fd
    os.close(fd)


def test_a_file_that_was_just_written_is_there(fd: int) -> None:
    """To the byte, although the kernel counts pages."""
    assert cached_bytes(fd, 0, 4 * MIB + 10) == 4 * MIB + 10
    assert cached_bytes(fd, 4 * MIB, 10) == 10


def test_what_was_dropped_is_not(fd: int, tmp_path: Path) -> None:
    """What is read afterwards is, and no more."""
    drop(tmp_path / "file")
    assert cached_bytes(fd, 0, 4 * MIB) == resident_bytes(tmp_path / "file") == 0

    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, 4096, MIB)
    assert cached_bytes(fd, MIB, 4096) == 4096
    assert cached_bytes(fd, 0, MIB) == 0


def test_where_it_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such file, or another system."""
    assert cached_bytes(-1, 0, 1) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cached_bytes(0, 0, 1) is None
