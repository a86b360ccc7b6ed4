"""Times and sizes."""

from __future__ import annotations

import pytest

from llmsnap.config.quantities import (
    parse_duration,
    parse_size,
    rough_size,
    seconds_text,
    size_text,
    span_text,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5), ("300ms", 0.3), ("5s", 5.0), ("2m", 120.0), ("1h30m", 5400.0),
        ("1.5h", 5400.0), (".5s", 0.5), ("2.5", 2.5), ("7", 7.0), ("0", 0.0), ("100us", 1e-4),
        ("100µs", 1e-4), ("100μs", 1e-4), ("5ns", 5e-9), (" 5 s ", 5.0), ("1m0.5s", 60.5),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    """Go's notation, and plain seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5 sec", "-5s", "1d", "5S", "1h 30m", "5s5", "∞", "1e3"])
def test_no_durations(text: str) -> None:
    """The error says what would be right."""
    with pytest.raises(ValueError, match="isn't a time; write seconds, or 500ms, 5s, 2m, 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 * 1024**2), ("8GiB", 8 * 1024**3), ("8GB", 8 * 10**9), ("1kB", 1000),
        ("1KiB", 1024), ("1TiB", 1024**4), ("1TB", 10**12), ("1.5GiB", 3 * 2**29), ("10", 10),
        ("10B", 10), (" 8 gb ", 8 * 10**9), ("0.1GB", 10**8),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    """Powers of 1024 with an i, of 1000 without, in any case."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "8G", "-1", "8 GiBs", "1e9", "8PiB", "8,5GiB", "inf"])
def test_no_sizes(text: str) -> None:
    """`8G` could be either; the error says what would be right."""
    with pytest.raises(ValueError, match="isn't a size; write bytes, or 512MiB, 8GiB, 8GB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (600 * 2**20, "600 MiB"),
     (3 * 2**29, "1.5 GiB"), (2**43, "8 TiB"), (2**55, "3.277e+04 TiB")],
)  # fmt: skip
def test_sizes_for_people(size: int, text: str) -> None:
    """Short, in the largest unit below."""
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 MiB"), (600 << 20, "600 MiB"), (8 << 30, "8.0 GiB"), (8_804_682_956, "8.2 GiB")],
)
def test_sizes_for_tables(size: int, text: str) -> None:
    """GiB from one on, MiB below, no more digits than one compares."""
    assert rough_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ms"), (0.0994, "99 ms"), (0.1, "0.1 s"), (9.94, "9.9 s"), (9.96, "10 s")],
)
def test_times_for_people(seconds: float, text: str) -> None:
    """As people say them."""
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(5.9, "5s"), (65, "1m05s"), (3599, "59m59s"), (11_400, "3h10m")]
)
def test_spans_for_tables(seconds: float, text: str) -> None:
    """Two units at most."""
    assert span_text(seconds) == text
