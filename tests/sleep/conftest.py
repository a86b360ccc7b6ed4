"""Fixtures of the simulated driver, and swap."""

from __future__ import annotations

from tests.helpers.swap import little_swap, swap
from tests.sim.fixtures import gauge, libraries, make_world, old_libraries, world

__all__ = ["gauge", "libraries", "little_swap", "make_world", "old_libraries", "swap", "world"]
