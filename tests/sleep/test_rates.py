"""Predictions of sleep and wake times, from what was measured."""

from __future__ import annotations

import pytest

from llmsnap.sleep.rates import Rates

GB = 10**9


def test_predicts_before_it_has_learned() -> None:
    """A wake is supposed to be quicker than a sleep."""
    rates = Rates()
    assert 1 < rates.wake.seconds_for(10 * GB) < rates.sleep.seconds_for(10 * GB) < 6


def test_learns_from_what_was_measured() -> None:
    """The same again is predicted to take as long; then newer figures count by a share."""
    rate = Rates().wake
    rate.learn(10 * GB, 2.2)
    assert rate.seconds_for(10 * GB) == pytest.approx(2.2)
    rate.learn(10 * GB, 5.2)
    assert 2.2 < rate.seconds_for(10 * GB) < 5.2


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
