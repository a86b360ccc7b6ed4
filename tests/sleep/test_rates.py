"""Predictions of sleep and wake times, from what was measured."""

from __future__ import annotations

import pytest

from llmsnap.sleep.rates import Rates

GB = 10**9


def test_predicts_nothing_before_it_has_learned() -> None:
    """Machines differ too much for a guess."""
    assert Rates().wake.seconds_for(10 * GB) is None


def test_learns_from_what_was_measured() -> None:
    """The same again is predicted to take as long; then newer figures count by a share."""
    rate = Rates().wake
    rate.learn(10 * GB, 2.2)
    assert rate.seconds_for(10 * GB) == pytest.approx(2.2)
    rate.learn(10 * GB, 5.2)
    predicted_s = rate.seconds_for(10 * GB)
    assert predicted_s is not None
    assert 2.2 < predicted_s < 5.2


def test_tiny_moves_teach_nothing() -> None:
    """They are nearly all fixed cost."""
    rate = Rates().sleep
    rate.learn(1_000_000, 0.3)
    assert rate.learned is None


def test_a_move_within_the_fixed_cost_gives_a_rate_all_the_same() -> None:
    """Time that is left over is never zero or less."""
    rate = Rates().wake
    rate.learn(GB, 0.1)
    assert rate.learned == pytest.approx(GB / 0.01)
