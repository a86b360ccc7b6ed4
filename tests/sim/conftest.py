"""Fixtures of the simulated driver."""

from __future__ import annotations

from tests.sim.fixtures import gauge, libraries, make_world, old_libraries, world

__all__ = ["gauge", "libraries", "make_world", "old_libraries", "world"]
