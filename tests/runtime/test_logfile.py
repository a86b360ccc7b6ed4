"""What children print to a file: read soon, bounded, and found again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from llmsnap.runtime.logfile import LogFile, log_files
from tests.helpers.waiting import eventually


async def test_what_is_printed_is_passed_on(tmp_path: Path) -> None:
    """Soon after it is there, once, and the file is its owner's alone."""
    path, got = tmp_path / "run" / "a.log", bytearray()
    file = LogFile(path, got.extend)
    os.write(file.write_end, b"one\n")
    await eventually(lambda: got == b"one\n")
    os.write(file.write_end, b"two\n")
    file.close()

    assert got == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_the_next_one_begins_with_what_was_before(tmp_path: Path) -> None:
    """And goes on where the first ended."""
    path, got = tmp_path / "a.log", bytearray()
    first = LogFile(path, lambda _: None)
    child = os.dup(first.write_end)
    os.write(child, b"before\n")
    first.close()
    second = LogFile(path, got.extend)
    os.write(child, b"after\n")
    second.close()
    os.close(child)

    assert got == b"before\nafter\n"


async def test_it_never_grows_large(tmp_path: Path) -> None:
    """It is emptied under whoever writes, its end is kept, and nothing is missed."""
    path, got = tmp_path / "a.log", bytearray()
    file = LogFile(path, got.extend, most_bytes=1000)
    lines = [b"%d" % number * 500 + b"\n" for number in range(10)]
    for line in lines:
        os.write(file.write_end, line)
        await eventually(lambda last=line: got.endswith(last))
        await eventually(lambda: path.stat().st_size < 1000)
    file.close()
    again = bytearray()
    LogFile(path, again.extend).close()

    assert log_files(path)[1].stat().st_size <= 1100
    assert bytes(got) == b"".join(lines)
    assert got.endswith(again)
    assert again


async def test_a_symlink_in_its_place_is_refused(tmp_path: Path) -> None:
    """Nothing is written to where somebody else wants it."""
    path, target = tmp_path / "a.log", tmp_path / "precious"
    target.write_text("precious")
    path.symlink_to(target)

    with pytest.raises(OSError, match="symbolic link"):
        LogFile(path, lambda _: None)
    assert target.read_text() == "precious"
