"""Whether the benchmark and the proxy saw the same: the time to the first token of each request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any, Final

from msgspec import Struct, structs

from llmsnap.bench.samples import Sample, good

MOST_S: Final = 0.005
MOST_SHARE: Final = 0.05
_APART_S: Final = 2.0
"""A request reaches the proxy that soon after it was sent."""


class Agreement(Struct, frozen=True):
    """How far apart they are, in the median."""

    count: int
    apart_s: float
    allowed_s: float

    @property
    def holds(self) -> bool:
        """Whether that is close enough."""
        return self.apart_s <= self.allowed_s

    def __str__(self) -> str:
        verdict = "agree" if self.holds else "DISAGREE"
        return (
            f"benchmark and proxy {verdict}: their times to the first token are "
            f"{self.apart_s * 1e3:.1f} ms apart in the median of {self.count} requests "
            f"({self.allowed_s * 1e3:.1f} ms are allowed: {MOST_S * 1e3:g} ms and {MOST_SHARE:.0%})"
        )


def with_proxys_word(
    samples: Iterable[Sample], server: str, rows: Sequence[Mapping[str, Any]]
) -> list[Sample]:
    """Return the samples, those of `server` with what its rows say of the same requests."""
    at = [(datetime.fromisoformat(str(row["timestamp"])), row) for row in rows]
    found = []
    for one in samples:
        if one.server == server and not one.fault:
            asked = datetime.fromisoformat(one.asked_at)
            later = [
                ((moment - asked).total_seconds(), row["ttft_s"])
                for moment, row in at
                if row["ttft_s"] is not None and row["model"] == one.model
            ]
            soon = [(after_s, s) for after_s, s in later if -0.01 <= after_s < _APART_S]
            one = structs.replace(one, proxy_first_s=min(soon)[1] if soon else None)
        found.append(one)
    return found


def agreement(samples: Iterable[Sample]) -> Agreement | None:
    """Return how far apart they are; None: there is nothing to compare."""
    pairs = [
        (one.first_s, one.proxy_first_s)
        for one in good(samples)
        if one.first_s is not None and one.proxy_first_s is not None
    ]
    if not pairs:
        return None
    apart_s = median(abs(mine - theirs) for mine, theirs in pairs)
    return Agreement(
        len(pairs), apart_s, MOST_S + MOST_SHARE * median(theirs for _, theirs in pairs)
    )
