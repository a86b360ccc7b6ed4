"""Fixtures of the simulated driver."""

from __future__ import annotations

from tests.sim.fixtures import libraries, make_world, world

__all__ = ["libraries", "make_world", "world"]
