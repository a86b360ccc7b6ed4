"""Histograms as llama-swap's page draws them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmsnap.telemetry.stats import histogram, percentile


def test_nothing_known_makes_none() -> None:
    """A speed of 0 or less is unknown."""
    assert histogram([]) is None
    assert histogram([0.0, -1.0]) is None


def test_equal_speeds_make_one_bin() -> None:
    """It has no width."""
    one = histogram([7.0] * 9)

    assert one is not None
    assert (one.bins, one.bin_size, one.min, one.max, one.p99) == ([9], 0, 7, 7, 7)


@pytest.mark.parametrize(("count", "bins"), [(2, 5), (16, 5), (17, 6), (1024, 11), (2**21, 20)])
def test_more_speeds_make_more_bins(count: int, bins: int) -> None:
    """Up to 20."""
    speeds = [1.0 + number / count for number in range(min(count, 4096))]
    speeds += [1.5] * (count - len(speeds))
    made = histogram(speeds)

    assert made is not None
    assert len(made.bins) == bins
    assert sum(made.bins) == count


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 2.5), (95, 3.85), (100, 4)])
def test_percentiles_lie_between_neighbours(percent: float, expected: float) -> None:
    """By linear interpolation."""
    assert percentile([1, 2, 3, 4], percent) == pytest.approx(expected)


@given(st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=300))
def test_every_speed_is_in_a_bin(speeds: list[float]) -> None:
    """Whatever they are."""
    made = histogram(speeds)

    assert made is not None
    assert sum(made.bins) == len(speeds)
    assert made.min <= made.p50 <= made.p95 <= made.p99 <= made.max
