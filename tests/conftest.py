"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The same examples each time, however slow the machine is: what fails is what has changed.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
