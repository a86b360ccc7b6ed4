"""Times and sizes as people write them."""

from __future__ import annotations

import re
from typing import Final

_NANOSECONDS: Final[dict[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # with the micro sign
    "μs": 1_000,  # with the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_NUMBER: Final = r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})"
_DURATION_PART: Final = re.compile(_NUMBER + rf" ?({'|'.join(_NANOSECONDS)})")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_PLAIN: Final = re.compile(_NUMBER)

_SIZE: Final = re.compile(_NUMBER + r" ?([a-z]+)?", re.IGNORECASE)
_SIZE_UNITS: Final[dict[str, int]] = {
    "b": 1,
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
}


def parse_duration(text: str) -> float:
    """Return the seconds that `text` means, such as `500ms`, `5s`, `1h30m` or `2.5`.

    Raises ValueError with what would be right.
    """
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} isn't a time; write seconds, or 500ms, 5s, 2m, 1h30m")
    parts = _DURATION_PART.findall(text)
    return sum(float(number) * _NANOSECONDS[unit] for number, unit in parts) / 1e9


def parse_size(text: str) -> int:
    """Return the bytes that `text` means, such as `512MiB`, `8GB` or `1024`.

    Raises ValueError with what would be right.
    """
    text = text.strip()
    match = _SIZE.fullmatch(text)
    factor = _SIZE_UNITS.get((match[2] or "b").lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} isn't a size; write bytes, or 512MiB, 8GiB, 8GB")
    return round(float(match[1]) * factor)


def rough_size(size: int) -> str:
    """Return `size` bytes where nobody wants to read more digits: `8.2 GiB`, `512 MiB`."""
    gib, mib = 1024**3, 1024**2
    return f"{size / gib:.1f} GiB" if size >= gib else f"{size / mib:.0f} MiB"


def seconds_text(seconds: float) -> str:
    """Return seconds as people say them: `40 ms`, `0.2 s`, `4.1 s`, `75 s`."""
    if seconds < 0.0995:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def span_text(seconds: float) -> str:
    """Return a span for tables, its two largest units at most: `5s`, `2m05s`, `3h10m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def size_text(size: int) -> str:
    """Return `size` bytes for people, such as `1.5 GiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"
