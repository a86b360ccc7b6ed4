"""What became of one save or restore, for whoever counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Outcome:
    """One save (`saved`, `failed`) or restore (`used`, `useless`, `refused`, `failed`)."""

    model: str
    op: Literal["save", "restore"]
    result: str
    bytes: int = 0


Tell = Callable[[Outcome], None]
