"""Whether a sleep is worth it: a wake, against a start and the conversation read once more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LEAST_GAIN: Final = 1.2
"""By which factor the wake must be the slower one: these are predictions."""
_LEAST_GAIN_S: Final = 1.0
"""And by how much: nobody gives a conversation away for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Both ways to have a model back; None: not known."""

    wake_s: float | None
    start_s: float
    lost_tokens: int | None
    """What of its KV cache would have to be computed again after a start."""
    tokens_per_s: float | None
    """How fast it reads a prompt."""


def better_stopped(ways: Ways) -> str:
    """Return why a stop and a start is the quicker way, in words; empty: it isn't, as far as known.

    Where something isn't known a sleep is the better guess: it loses nothing.
    """
    if ways.wake_s is None or ways.lost_tokens is None:
        return ""
    if ways.lost_tokens and not ways.tokens_per_s:
        return ""
    prefill_s = ways.lost_tokens / ways.tokens_per_s if ways.tokens_per_s else 0.0
    back_s = ways.start_s + prefill_s
    if ways.wake_s <= max(back_s * _LEAST_GAIN, back_s + _LEAST_GAIN_S):
        return ""
    told = f"a wake would take about {ways.wake_s:.1f} s, a start {ways.start_s:.1f} s"
    if not ways.lost_tokens:
        return told
    return f"{told} and its {ways.lost_tokens} tokens {prefill_s:.1f} s more"
