from __future__ import annotations

import errno
import os
import threading
import time

import pytest

from llmsnap.runtime.stdout import Stdout


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread has all the time it needs for its last words, and is gone when its pipe is."""
    monkeypatch.setattr("llmsnap.runtime.stdout._LAST_WORDS_S", 60.0)


def read_all(descriptor: int) -> bytes:
    """Read until the end."""
    data = b""
    while part := os.read(descriptor, 65536):
        data += part
    return data


def test_lines_come_out_in_order() -> None:
    """All that was written before the end, as it was written."""
    read_end, write_end = os.pipe()
    out = Stdout(write_end)
    for n in range(100):
        out.write(b"%d\n" % n)
    out.close()
    os.close(write_end)
    assert read_all(read_end) == b"".join(b"%d\n" % n for n in range(100))
    os.close(read_end)


def test_a_stalled_reader_blocks_nobody_and_is_told_what_it_missed() -> None:
    """Pipe and queue are full: writing goes on at once, and a line says how much is gone."""
    read_end, write_end = os.pipe()
    out = Stdout(write_end)
    for _ in range(6000):  # more than the queue holds twice, for the thread takes it once
        out.write(b"x" * 1000)  # for ever, if it waited: nobody reads yet
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(read_all(read_end)))
    reader.start()
    while not out.is_drained:
        time.sleep(0.001)
    out.write(b"last\n")
    out.close()
    os.close(write_end)
    reader.join()
    os.close(read_end)
    assert received[0].endswith(b"last\n")
    assert b"bytes dropped, stdout is stalled]\n" in received[0]


def test_large_pieces_fill_no_memory() -> None:
    """A model that prints without end, while nobody reads what the proxy prints."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    out = Stdout(write_end)
    for _ in range(1000):
        out.write(b"x" * 64 * 1024)
    assert sum(map(len, out._chunks)) <= 3 * 2**20
    os.close(read_end)
    out.close()
    os.close(write_end)


def test_a_reader_that_is_gone_hurts_nobody() -> None:
    """Writing to a closed pipe is given up in silence."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    out = Stdout(write_end)
    out.write(b"x")
    out.close()
    out.write(b"y")
    os.close(write_end)


def test_a_disk_that_was_full_gets_what_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a line that says how much is gone; the thread doesn't end with the first error."""
    read_end, write_end = os.pipe()
    full = threading.Event()
    tried = threading.Event()
    write = os.write

    def limited(descriptor: int, data: memoryview) -> int:
        if full.is_set() and descriptor == write_end:
            tried.set()
            raise OSError(errno.ENOSPC, "no space left on device")
        return write(descriptor, data)

    monkeypatch.setattr("llmsnap.runtime.stdout.os.write", limited)
    out = Stdout(write_end)
    full.set()
    out.write(b"lost\n")
    assert tried.wait(20)
    full.clear()
    out.write(b"later\n")
    out.close()
    os.close(write_end)
    assert read_all(read_end) == b"\n[llmsnap: 5 bytes dropped, stdout is stalled]\nlater\n"
    os.close(read_end)
