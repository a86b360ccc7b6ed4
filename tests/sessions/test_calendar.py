"""The time by which what is saved grows old."""

from __future__ import annotations

import time

from llmsnap.sessions.calendar import Calendar, elapsed_s

DAY = 86_400.0


class Clocks:
    """The wall clock, which may be set, and the time that really passes."""

    wall = 1e9
    elapsed = 5.0


def calendar(**more: float) -> tuple[Clocks, Calendar]:
    """One that has just begun."""
    clocks = Clocks()
    return clocks, Calendar(lambda: clocks.wall, lambda: clocks.elapsed, **more)


def test_it_goes_on_as_time_passes_whatever_the_clock_is_set_to() -> None:
    """Moments that it has counted can be told by the wall clock as it goes now."""
    clocks, counted = calendar()
    clocks.wall -= 365 * DAY
    clocks.elapsed += 10
    assert counted() == 1e9 + 10
    assert counted.on_the_wall(1e9 + 4) == clocks.wall - 6


def test_what_passes_in_one_go_counts_so_much_at_most() -> None:
    """A suspend may end with a clock that is wrong; time doesn't go backwards."""
    clocks, counted = calendar(most_s=15 * DAY)
    clocks.elapsed += 100 * DAY
    assert counted() == 1e9 + 15 * DAY
    clocks.elapsed -= 50 * DAY
    assert counted() == 1e9 + 15 * DAY
    clocks.elapsed += DAY
    assert counted() == 1e9 + 16 * DAY


def test_it_goes_on_where_another_one_was() -> None:
    """With the time in between, by the wall clock; none where that went back."""
    clocks, counted = calendar()
    counted.take_up(1e9 - DAY, 2e9)
    assert counted() == 2e9 + DAY
    counted.take_up(1e9 + DAY, 2e9)
    clocks.elapsed += 1
    assert counted() == 2e9 + 1


def test_real_clocks_agree() -> None:
    """In what passes between two looks."""
    assert 0 <= elapsed_s() - elapsed_s() + 1 <= 1
    counted = Calendar(lambda: 0.0)
    assert 0 <= counted() <= counted() < 60
    assert elapsed_s() >= time.monotonic() - 60
