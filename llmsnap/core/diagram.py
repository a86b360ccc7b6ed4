"""The life cycle as a picture: what docs/lifecycle.md shows is made from the table."""

from __future__ import annotations

from collections.abc import Iterator

from llmsnap.core.lifecycle import TRANSITIONS, State


def mermaid() -> str:
    """Return the life cycle as a Mermaid state diagram, one arrow a transition."""
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in _lines()), ""])


def _lines() -> Iterator[str]:
    yield f"[*] --> {State.STOPPED}"
    for state, moves in TRANSITIONS.items():
        for trigger, after in moves.items():
            yield f"{state} --> {after}: {trigger}"
