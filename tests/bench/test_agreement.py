"""Whether the proxy has seen the same."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.bench.agreement import agreement, with_proxys_word
from llmsnap.bench.swap import silent_servers
from tests.bench.samples import sample


def row(second: float, ttft_s: float | None, model: str = "m") -> dict[str, Any]:
    """What the proxy says of a request that came so many seconds after noon."""
    return {"timestamp": f"2026-11-30T12:00:{second:06.3f}+00:00", "model": model, "ttft_s": ttft_s}


def test_each_sample_gets_the_word_on_its_own_request() -> None:
    """Not that on others' requests, or on others' models."""
    rows = [
        row(0.001, 0.5, "other"),
        row(0.002, 1.5),
        row(0.4, 9.0),
        row(30.0, 2.0),
        row(50, None),
    ]
    samples = [sample(asked_at=f"2026-11-30T12:00:{s}.000+00:00") for s in ("00", "29", "50", "55")]

    found = with_proxys_word(samples, "llmsnap", rows)

    assert [one.proxy_first_s for one in found] == [1.5, 2.0, None, None]
    (other,) = with_proxys_word([sample(server="other")], "llmsnap", rows)
    assert other.proxy_first_s is None


@pytest.mark.parametrize(("mine", "theirs", "holds"), [(1.054, 1.0, True), (1.06, 1.0, False)])
def test_five_milliseconds_and_five_percent_are_allowed(
    mine: float, theirs: float, holds: bool
) -> None:
    """In the median."""
    found = agreement([sample(mine, proxy_first_s=theirs)] * 3)

    assert found is not None
    assert found.holds is holds
    assert ("DISAGREE" in str(found)) is not holds


def test_nothing_is_said_of_nothing() -> None:
    """Where the proxy keeps no rows, say."""
    assert agreement([sample()]) is None


def test_a_server_that_says_nothing_of_its_tokens_is_named() -> None:
    """Once; one that does isn't."""
    samples = [sample(server="mute"), sample(server="mute"), sample(prompt=5)]

    (note,) = silent_servers(samples)
    assert note.startswith("mute tells neither timings nor usage")
