"""The fifteen time layouts of `logTimeFormat`, named and written as Go's `time` package does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final


def timestamp(layout: str, when: datetime) -> str:
    """Return `when`, which knows its zone, in the layout of that name; empty for an unknown one."""
    write = _LAYOUTS.get(layout.strip().lower())
    return write(when) if write else ""


def _pattern(pattern: str) -> Callable[[datetime], str]:
    return lambda when: when.strftime(pattern)


def _rfc3339(when: datetime, fraction: str = "") -> str:
    zone = when.strftime("%z")
    zone = "Z" if zone == "+0000" else f"{zone[:3]}:{zone[3:5]}"
    return f"{when:%Y-%m-%dT%H:%M:%S}{fraction}{zone}"


def _rfc3339_nano(when: datetime) -> str:
    fraction = f".{when:%f}".rstrip("0").rstrip(".")
    return _rfc3339(when, fraction)


def _kitchen(when: datetime) -> str:
    return f"{(when.hour + 11) % 12 + 1}:{when:%M%p}"


def _stamp(digits: int) -> Callable[[datetime], str]:
    return lambda when: f"{when:%b %e %H:%M:%S}.{f'{when:%f}000'[:digits]}"


_LAYOUTS: Final[Mapping[str, Callable[[datetime], str]]] = {
    "ansic": _pattern("%a %b %e %H:%M:%S %Y"),
    "unixdate": _pattern("%a %b %e %H:%M:%S %Z %Y"),
    "rubydate": _pattern("%a %b %d %H:%M:%S %z %Y"),
    "rfc822": _pattern("%d %b %y %H:%M %Z"),
    "rfc822z": _pattern("%d %b %y %H:%M %z"),
    "rfc850": _pattern("%A, %d-%b-%y %H:%M:%S %Z"),
    "rfc1123": _pattern("%a, %d %b %Y %H:%M:%S %Z"),
    "rfc1123z": _pattern("%a, %d %b %Y %H:%M:%S %z"),
    "rfc3339": _rfc3339,
    "rfc3339nano": _rfc3339_nano,
    "kitchen": _kitchen,
    "stamp": _pattern("%b %e %H:%M:%S"),
    "stampmilli": _stamp(3),
    "stampmicro": _stamp(6),
    "stampnano": _stamp(9),
}
