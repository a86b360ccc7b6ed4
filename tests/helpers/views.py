"""Models as the scheduler would show them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView

_NEVER_UP: Final = ModelView(
    model="",
    state=State.STOPPED,
    generation=0,
    in_flight=0,
    waiting=0,
    paused=0,
    pinned=False,
    unloading=False,
    ready_at=None,
    used_at=None,
    fails=0,
    retry_at=None,
    round_trip_s=2.0,
    back_s=2.0,
    need=None,
    error=None,
)


def view_of(model: str, **facts: Any) -> ModelView:
    """A model that was never up, but for these facts."""
    return replace(_NEVER_UP, model=model, **facts)
