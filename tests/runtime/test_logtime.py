from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from llmsnap.runtime.logtime import timestamp

MST = timezone(timedelta(hours=-7), "MST")
WHEN = datetime(2006, 1, 2, 15, 4, 5, 123456, MST)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("ansic", "Mon Jan  2 15:04:05 2006"),
        ("unixdate", "Mon Jan  2 15:04:05 MST 2006"),
        ("rubydate", "Mon Jan 02 15:04:05 -0700 2006"),
        ("rfc822", "02 Jan 06 15:04 MST"),
        ("rfc822z", "02 Jan 06 15:04 -0700"),
        ("rfc850", "Monday, 02-Jan-06 15:04:05 MST"),
        ("rfc1123", "Mon, 02 Jan 2006 15:04:05 MST"),
        ("rfc1123z", "Mon, 02 Jan 2006 15:04:05 -0700"),
        ("rfc3339", "2006-01-02T15:04:05-07:00"),
        ("rfc3339nano", "2006-01-02T15:04:05.123456-07:00"),
        ("kitchen", "3:04PM"),
        ("stamp", "Jan  2 15:04:05"),
        ("stampmilli", "Jan  2 15:04:05.123"),
        ("stampmicro", "Jan  2 15:04:05.123456"),
        ("stampnano", "Jan  2 15:04:05.123456000"),
    ],
)
def test_the_fifteen_layouts_of_go(layout: str, text: str) -> None:
    """Go's own reference time, in each of its layouts."""
    assert timestamp(layout, WHEN) == text


@pytest.mark.parametrize(
    ("layout", "when", "text"),
    [
        ("kitchen", WHEN.replace(hour=0), "12:04AM"),
        ("kitchen", WHEN.replace(hour=12), "12:04PM"),
        ("rfc3339nano", WHEN.replace(microsecond=120000), "2006-01-02T15:04:05.12-07:00"),
        ("rfc3339nano", WHEN.replace(microsecond=0), "2006-01-02T15:04:05-07:00"),
        ("rfc3339", WHEN.astimezone(UTC), "2006-01-02T22:04:05Z"),
        (" RFC3339 ", WHEN, "2006-01-02T15:04:05-07:00"),
    ],
)
def test_the_corners_of_some(layout: str, when: datetime, text: str) -> None:
    """Midnight and noon, fractions without trailing zeros, Z for UTC, names in any case."""
    assert timestamp(layout, when) == text


@pytest.mark.parametrize("layout", ["", "iso", "2006-01-02"])
def test_unknown_layouts_mean_no_time(layout: str) -> None:
    """As in llama-swap, without an error."""
    assert timestamp(layout, WHEN) == ""
