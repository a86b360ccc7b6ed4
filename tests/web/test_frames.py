"""Where frames end, however their bytes come."""

from __future__ import annotations

import random

import pytest

from llmsnap.web.frames import Frames


def frame(size: int, *, masked: bool = False) -> bytes:
    """A frame with a payload of `size` bytes that look like heads."""
    short = size if size < 126 else 126 if size < 65536 else 127
    more = b"" if size < 126 else size.to_bytes(2 if size < 65536 else 8)
    return bytes([0x82, short | 0x80 * masked]) + more + b"mask" * masked + b"\x82" * size


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 70000])
@pytest.mark.parametrize("masked", [False, True])
def test_a_frame_ends_with_its_last_byte(size: int, *, masked: bool) -> None:
    """Whatever the form of its length."""
    frames, data = Frames(), frame(size, masked=masked)
    assert frames.take(data[:-1]) == 0
    assert not frames.is_between
    assert frames.take(data[-1:]) == 1
    assert frames.is_between


def test_several_in_pieces() -> None:
    """Every end is found, where it is, by whatever pieces the bytes come in."""
    rng = random.Random(5)
    sizes = [rng.choice([0, 3, 125, 126, 300, 66000]) for _ in range(40)]
    data, ends = b"", []
    for size in sizes:
        data += frame(size)
        ends.append(len(data))
    frames, at = Frames(), 0
    while at < len(data):
        piece = data[at : at + rng.choice([1, 2, 5, 1000, 50000])]
        before = [end for end in ends if at < end <= at + len(piece)]
        assert frames.take(piece) == (before[-1] - at if before else 0)
        at += len(piece)
    assert frames.is_between
