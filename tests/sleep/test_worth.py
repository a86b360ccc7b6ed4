"""When a stop and a start is the quicker way back."""

from __future__ import annotations

import pytest

from llmsnap.sleep.worth import Ways, better_stopped


@pytest.mark.parametrize(
    ("wake_s", "start_s", "lost_tokens", "tokens_per_s", "stopped"),
    [
        pytest.param(3, 10, 0, None, False, id="a wake is quicker"),
        pytest.param(10, 3, 0, None, True, id="a start is quicker, and nothing is lost"),
        pytest.param(10, 3, 1000, 500.0, True, id="a start is quicker, with the conversation"),
        pytest.param(10, 3, 4000, 500.0, False, id="the conversation tips the scales"),
        pytest.param(10, 3, 1000, None, False, id="how fast it reads isn't known"),
        pytest.param(10, 3, None, 500.0, False, id="how much it would have to read isn't known"),
        pytest.param(None, 3, 0, None, False, id="what a wake takes isn't known"),
        pytest.param(1.9, 1, 0, None, False, id="less than a second isn't worth it"),
        pytest.param(2.1, 1, 0, None, True, id="more is"),
        pytest.param(35, 30, 0, None, False, id="within what predictions are off"),
        pytest.param(37, 30, 0, None, True, id="beyond that"),
    ],
)
def test_the_quicker_way_is_taken_if_it_is_known_well_enough(
    wake_s: float | None,
    start_s: float,
    lost_tokens: int | None,
    tokens_per_s: float | None,
    stopped: bool,
) -> None:
    """In doubt it sleeps: that loses nothing."""
    ways = Ways(wake_s=wake_s, start_s=start_s, lost_tokens=lost_tokens, tokens_per_s=tokens_per_s)
    assert bool(better_stopped(ways)) is stopped


def test_why_is_told_with_figures() -> None:
    """For whoever wonders where the conversation went."""
    ways = Ways(wake_s=12.04, start_s=3, lost_tokens=1000, tokens_per_s=500)
    assert better_stopped(ways) == (
        "a wake would take about 12.0 s, a start 3.0 s and its 1000 tokens 2.0 s more"
    )
    ways = Ways(wake_s=12, start_s=3, lost_tokens=0, tokens_per_s=None)
    assert better_stopped(ways) == "a wake would take about 12.0 s, a start 3.0 s"
