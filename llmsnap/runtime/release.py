"""All memory given back for something else, and taken again afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from llmsnap.core.messages import Event, ModelView, ReleaseRequested, ResumeRequested
from llmsnap.core.slot import DOWN, SLUMBER
from llmsnap.errors import Conflict

_GONE: Final = DOWN | SLUMBER


class Releases(Protocol):
    """What it needs of the supervisor."""

    @property
    def released(self) -> Held | None: ...

    def views(self) -> list[ModelView]: ...

    def post(self, event: Event) -> None: ...

    async def next_event(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Held:
    """That nothing is loaded now."""

    left_s: float
    """For so long; infinite: until somebody resumes."""
    refuses: bool
    """Whether requests are refused meanwhile; else they wait."""


async def release(supervisor: Releases, order: ReleaseRequested) -> list[ModelView]:
    """Give all memory back as `order` says; return all models once it is shown free.

    It stays so when the caller gives up waiting. Raises Conflict when it was taken again before all
    of it was free.
    """
    supervisor.post(order)
    while busy := [view.model for view in supervisor.views() if view.state not in _GONE]:
        if supervisor.released is None:
            raise Conflict(f"resumed before {', '.join(busy)} had left; release again")
        await supervisor.next_event()
    return supervisor.views()


def resume(supervisor: Releases) -> None:
    """Let models load again; who has waited goes first."""
    supervisor.post(ResumeRequested())
