"""The picture in the documentation is the table."""

from __future__ import annotations

from pathlib import Path

from llmsnap.core.diagram import mermaid
from llmsnap.core.lifecycle import TRANSITIONS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_documented_diagram_is_made_from_the_table() -> None:
    """After a change: `python -c "from llmsnap.core.diagram import mermaid; print(mermaid())"`."""
    assert f"```mermaid\n{mermaid()}```" in (DOCS / "lifecycle.md").read_text()


def test_every_move_has_an_arrow() -> None:
    """One line a transition, and the beginning."""
    arrows = [line for line in mermaid().splitlines() if "-->" in line]
    assert len(arrows) == 1 + sum(len(moves) for moves in TRANSITIONS.values())
    assert "    ready --> sleeping: sleep" in arrows
