"""What the supervisor needs of those it directs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from llmsnap.core.messages import Action, Event, ModelView, Phases
from llmsnap.errors import LlmsnapError
from llmsnap.runtime.rest import RestView
from llmsnap.runtime.upstream import Upstream


class Decides(Protocol):
    """What it needs of `core.Scheduler`."""

    @property
    def next_deadline(self) -> float: ...

    @property
    def idle(self) -> bool: ...

    @property
    def released(self) -> tuple[float, bool] | None: ...

    @property
    def history(self) -> Collection[tuple[float, Event, Sequence[Action]]]: ...

    def handle(self, event: Event) -> list[Action]: ...

    def waited(self, ticket: int) -> Phases: ...

    def view(self, model: str) -> ModelView: ...

    def views(self) -> list[ModelView]: ...


class Runs(Protocol):
    """What it needs of a `Runner`, which reports to `Supervisor.post`."""

    @property
    def upstream(self) -> Upstream | None: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def rest(self) -> RestView: ...

    @property
    def alive(self) -> bool: ...

    @property
    def outlives_us(self) -> bool: ...

    @property
    def unload_timeout_s(self) -> float: ...

    @property
    def end_timeout_s(self) -> float: ...

    def start(self, generation: int) -> None: ...

    def stop(self, *, now: bool = False) -> None: ...

    def leave(self) -> None: ...

    def fail(self, error: LlmsnapError) -> None: ...

    def sleep(self, *, anyway: bool) -> None: ...

    def page_out(self) -> None: ...

    def wake(self) -> None: ...
