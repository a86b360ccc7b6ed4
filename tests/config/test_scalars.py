"""Typing of plain words and rendering of values, as Go does both."""

from __future__ import annotations

import math

import pytest

from llmsnap.config.scalars import Timestamp, as_bool, as_text, plain_value, tagged_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 8), ("0o17", 15), ("0O17", 15), ("0777", 511), ("00", 0), ("-0o17", -15),
        ("0x10", 16), ("0X1f", 31), ("-0x1F", -31), ("0b11", 3), ("+0b1", 1), ("1_000", 1000),
        ("0x_F", 15), ("1__0", 10), ("-_1", -1), ("+5", 5), ("-0", 0), ("20240501", 20240501),
        ("9223372036854775807", 2**63 - 1), ("18446744073709551615", 2**64 - 1),
    ],
)  # fmt: skip
def test_whole_numbers(text: str, value: int) -> None:
    """All of Go's notations, octal with a plain 0 included."""
    assert plain_value(text) == value
    assert type(plain_value(text)) is int


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0), ("1E+3", 1000.0), ("1e-5", 1e-5), ("1.", 1.0), ("1.10", 1.1),
        (".5", 0.5), ("-.5", -0.5), ("08", 8.0), ("1_000.5", 1000.5), (".9_5", 0.95),
        ("123456789012345678901234567890", 1.2345678901234568e29),
        ("18446744073709551616", 2.0**64), ("-9223372036854775809", -(2.0**63)),
        (".inf", math.inf), ("-.Inf", -math.inf), ("+.INF", math.inf),
    ],
)  # fmt: skip
def test_floats(text: str, value: float) -> None:
    """No dot is needed before an exponent; whole numbers beyond 64 bits become floats."""
    assert plain_value(text) == value
    assert type(plain_value(text)) is float


def test_not_a_number_is_a_float() -> None:
    """`.nan`, that is; `nan` is text."""
    value = plain_value(".nan")

    assert isinstance(value, float)
    assert math.isnan(value)
    assert plain_value("nan") == "nan"


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_nulls(text: str) -> None:
    """Nothing, too, is null."""
    assert plain_value(text) is None


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("FALSE", False), ("false", False)]
)
def test_bools(text: str, value: bool) -> None:
    """Only true and false, in three ways each."""
    assert plain_value(text) is value


@pytest.mark.parametrize(
    "text",
    [
        "yes", "no", "on", "off", "y", "N", "tRUE", "nULL", "12:30:45", "1:20", "190:20:30",
        "1,000", "5s", "0o8", "0x", "0b2", "1e", "1e400", ".", "..", ".e1", "+", "._5", ".5_",
        "_1", "1p4", "0x1p4", "inf", "1 000", "<<", "=", "2024-05", "2024-13-45", "2024-02-30",
        "2024-05-01T", "2024-05-01 10:00:00Z", "2024-05-01T10:00:00", "2024-05-01 10:00:00 +2",
        "2024-05-01T25:00:00Z", "9" * 500,
    ],
)  # fmt: skip
def test_text(text: str) -> None:
    """What other parsers take for bools, base 60 or numbers is text."""
    assert plain_value(text) == text
    assert type(plain_value(text)) is str


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-05-01", "2024-05-01T00:00:00Z"),
        ("2024-5-1", "2024-05-01T00:00:00Z"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z"),
        ("2024-05-01t1:2:3Z", "2024-05-01T01:02:03Z"),
        ("2024-05-01 10:00:00", "2024-05-01T10:00:00Z"),
        ("2024-05-01 10:00:00.120", "2024-05-01T10:00:00.12Z"),
        ("2024-05-01T10:00:00.5+02:00", "2024-05-01T10:00:00.5+02:00"),
        ("2024-05-01T10:00:00+00:00", "2024-05-01T10:00:00Z"),
    ],
)
def test_timestamps(text: str, value: str) -> None:
    """Dates and times become RFC 3339 text."""
    stamp = plain_value(text)

    assert isinstance(stamp, Timestamp)
    assert stamp == value


@pytest.mark.parametrize(
    ("text", "tag", "value"),
    [
        ("010", "str", "010"), ("5", "int", 5), ("5", "float", 5.0), ("1.5", "float", 1.5),
        ("true", "bool", True), ("", "null", None), ("aGk=", "binary", "hi"), ("5", "!x", "5"),
        ("2024-05-01", "timestamp", "2024-05-01T00:00:00Z"),
    ],
)  # fmt: skip
def test_tags(text: str, tag: str, value: object) -> None:
    """A tag says what a text is, quoted or not; an unknown one means text."""
    assert tagged_value(text, tag) == value


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("5.5", "int"), ("abc", "int"), ("true", "int"), ("yes", "bool"), ("x", "null"),
        ("abc", "float"), ("true", "float"), ("x", "timestamp"), ("!", "binary"),
        ("/w==", "binary"),
    ],
)  # fmt: skip
def test_wrong_tags(text: str, tag: str) -> None:
    """A tag that doesn't fit is an error."""
    with pytest.raises(ValueError, match="base64" if tag == "binary" else f"read as !!{tag}"):
        tagged_value(text, tag)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"), (1000000.0, "1e+06"), (1e-5, "1e-05"), (1234567.5, "1.2345675e+06"),
        (999999.0, "999999"), (20971520.0, "2.097152e+07"), (0.00001234, "1.234e-05"),
        (0.0001, "0.0001"), (123456.789, "123456.789"), (1.1, "1.1"), (-60.9, "-60.9"),
        (-2097152.0, "-2.097152e+06"), (1.2345678901234568e20, "1.2345678901234568e+20"),
        (1e21, "1e+21"), (5e-324, "5e-324"), (0.0, "0"), (-0.0, "-0"),
        (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"),
        (True, "true"), (False, "false"), (None, ""), (1000000, "1000000"), ("x", "x"),
    ],
)  # fmt: skip
def test_rendering(value: str | int | float | bool | None, text: str) -> None:
    """Floats without a needless dot, with an exponent from a million on; whole numbers never."""
    assert as_text(value) == text


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (True, True), ("yes", True), ("on", True), ("Y", True), ("no", False), ("OFF", False),
        ("n", False), ("true", None), ("maybe", None), (1, None), (None, None),
    ],
)  # fmt: skip
def test_bools_where_a_bool_is_asked_for(value: str | int | bool | None, meaning: object) -> None:
    """YAML 1.1's words count there; quoted ones of YAML 1.2 don't."""
    assert as_bool(value) is meaning
