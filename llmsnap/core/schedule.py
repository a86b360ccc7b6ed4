"""The limits and patience of the scheduler, as the configuration sets them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The scheduler's settings, in seconds; see section 2 of docs/scheduling.md."""

    fair_after_s: float = 5.0
    preempt_after_s: float = 15.0
    hold_s: float = 10.0
    """Most that an idle model is kept for a client who is expected back (R8)."""
    max_wait_s: float = 600.0
    """Longest wait of a ticket; 0: no limit."""
