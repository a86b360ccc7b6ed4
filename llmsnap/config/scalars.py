"""What an unquoted word in YAML means, and how a value reads as text: both as in Go.

Peers read their files with Go's yaml.v3: `yes` is text, `010` is 8, `1e3` is a float, `12:30:45` is
text. PyYAML's own rules differ in each of these.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from datetime import date
from typing import Final


class Timestamp(str):
    """A date or time, as RFC 3339 text."""

    __slots__ = ()


Value = str | int | float | bool | None

_WORDS: Final[dict[str, Value]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER: Final = re.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[oO]?([0-7]+)|0[bB]([01]+)|(0|[1-9][0-9]*))"
)
_BASES: Final = (16, 8, 2, 10)
_UNDERSCORE: Final = re.compile(r"(?<=[0-9])_(?=[0-9])")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:"
    r"[Tt ]([01]?[0-9]|2[0-3]):([0-5]?[0-9]):([0-5]?[0-9])"
    r"(?:\.([0-9]+))?(Z|[-+](?:[01][0-9]|2[0-3]):[0-5][0-9])?)?"
)
_LONGEST_NUMBER: Final = 400
_INT64: Final = range(-(2**63), 2**64)
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "int": int,
    "float": (float, int),
    "bool": bool,
    "null": type(None),
    "timestamp": Timestamp,
}
_TRUE: Final = frozenset({"y", "yes", "on"})
_FALSE: Final = frozenset({"n", "no", "off"})


def plain_value(text: str) -> Value:
    """Return what the unquoted `text` means."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789" or len(text) > _LONGEST_NUMBER:
        return text
    stamp = _timestamp(text)
    if stamp is not None:
        return stamp
    number = _UNDERSCORE.sub("", text) if text[0] == "." else text.replace("_", "")
    integer = _integer(number)
    if integer is not None:
        return integer
    if _FLOAT.fullmatch(number) and not math.isinf(value := float(number)):
        return value
    return text


def tagged_value(text: str, tag: str) -> Value:
    """Return what `text` means under an explicit `tag` such as `int` (of `!!int`).

    Raises ValueError when it can't be that. Unknown tags mean text.
    """
    if tag == "binary":
        try:
            return base64.b64decode("".join(text.split()), validate=True).decode()
        except (binascii.Error, ValueError):
            raise ValueError(f"{text!r} isn't base64 of UTF-8 text") from None
    if tag not in _TYPES:
        return text
    value = plain_value(text)
    if not isinstance(value, _TYPES[tag]) or (isinstance(value, bool) and tag != "bool"):
        raise ValueError(f"{text!r} can't be read as !!{tag}")
    return float(value) if tag == "float" and isinstance(value, int) else value


def as_text(value: Value) -> str:
    """Return `value` as Go prints it: `true`, `1` for 1.0, `1e+06`, nothing for null."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case _:
            return str(value)


def as_bool(value: Value) -> bool | None:
    """Return what `value` means where a yes or no is asked for; None: neither."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.lower()
        return True if word in _TRUE else False if word in _FALSE else None
    return None


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    sign, *groups = match.groups()
    digits, base = next((d, b) for d, b in zip(groups, _BASES, strict=True) if d is not None)
    value = int(sign + digits, base)
    return value if value in _INT64 else None


def _timestamp(text: str) -> Timestamp | None:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    with_zone = text[4:].lstrip("-0123456789")[:1] in ("T", "t")
    if with_zone != (zone is not None):
        return None
    try:
        date(int(year) or 4, int(month), int(day))  # Go knows the year 0, a leap year
    except ValueError:
        return None
    clock = ":".join(f"{int(part or 0):02}" for part in (hour, minute, second))
    fraction = f".{fraction or ''}".rstrip(".0")
    zone = "Z" if zone in (None, "+00:00", "-00:00") else zone
    return Timestamp(f"{year}-{int(month):02}-{int(day):02}T{clock}{fraction}{zone}")


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return text.removesuffix(".0")
    if "e" in text:
        return text
    digits = text.replace(".", "").strip("-0")
    return f"{value:.{len(digits) - 1}e}"
