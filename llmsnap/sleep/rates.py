"""How fast memory goes and comes back on this machine, learned from what was measured."""

from __future__ import annotations

from typing import Final

_FIXED_S: Final = 0.2
"""What a checkpoint or restore takes however little it moves."""
_WEIGHT: Final = 0.3
"""Of the newest figure in the moving average."""
_LEAST_BYTES: Final = 256 * 1024**2
"""Less than this is nearly all fixed cost and tells nothing about the rate."""


class Rate:
    """Bytes a second one way."""

    def __init__(self) -> None:
        self.learned: float | None = None
        """Bytes a second, fixed cost aside; None before the first figure."""

    def learn(self, moved_bytes: int, seconds: float) -> None:
        """Take in that `moved_bytes` took `seconds`."""
        if moved_bytes < _LEAST_BYTES:
            return
        rate = moved_bytes / max(seconds - _FIXED_S, seconds / 10, 1e-3)
        if self.learned is not None:
            rate = _WEIGHT * rate + (1 - _WEIGHT) * self.learned
        self.learned = rate

    def seconds_for(self, moved_bytes: int) -> float | None:
        """Predict how long `moved_bytes` take; None before the first figure."""
        return None if self.learned is None else _FIXED_S + moved_bytes / self.learned


class Rates:
    """Both ways between two places."""

    def __init__(self) -> None:
        self.sleep = Rate()
        self.wake = Rate()
