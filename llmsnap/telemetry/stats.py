"""Sums and histograms of speeds, with the bins that llama-swap's page draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

_BINS: Final = (5, 20)


class Histogram(Struct, frozen=True, kw_only=True, rename={"bin_size": "binSize"}):
    """How often which speed was met, in tokens per second."""

    bins: list[int]
    min: float
    max: float
    bin_size: float
    p50: float
    p95: float
    p99: float


def histogram(speeds: Iterable[float]) -> Histogram | None:
    """Return the histogram of those `speeds` that are known; None: none is."""
    known = sorted(speed for speed in speeds if speed > 0)
    if not known:
        return None
    least, most = known[0], known[-1]
    count = min(max(math.ceil(math.log2(len(known))) + 1, _BINS[0]), _BINS[1])
    size = (most - least) / count
    if not size:
        bins = [len(known)]
    else:
        bins = [0] * count
        for speed in known:
            bins[min(int((speed - least) / size), count - 1)] += 1
    return Histogram(
        bins=bins,
        min=least,
        max=most,
        bin_size=size,
        p50=percentile(known, 50),
        p95=percentile(known, 95),
        p99=percentile(known, 99),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the value at `percent` of `ordered`, between two neighbours where it falls so."""
    rank = percent / 100 * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)
