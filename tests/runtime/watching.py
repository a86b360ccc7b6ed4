"""A machine and a fleet of models that tests move by hand."""

from __future__ import annotations

from collections.abc import Mapping

from llmsnap.config.schema import MemoryConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Event, ModelView
from llmsnap.memory.footprints import Figure, Source
from llmsnap.memory.machine import Look
from llmsnap.runtime.watch import Watch
from tests.helpers.views import view_of


class Learned:
    """Remembers the last that was seen of each model."""

    def __init__(self) -> None:
        self.seen: dict[str, Mapping[str, int]] = {}

    def figure(self, model: str) -> Figure:
        """Return what was seen."""
        return Figure(source=Source.LEARNED, bytes=self.seen.get(model, {}))

    def saw(self, model: str, held: Mapping[str, int]) -> Mapping[str, int] | None:
        """Return what is new."""
        if self.seen.get(model) == held:
            return None
        self.seen[model] = held
        return held


class Stage:
    """Models in states, and what a look at the machine shows."""

    def __init__(self, capacity: Mapping[str, int], config: MemoryConfig | None = None) -> None:
        self.states: dict[str, State] = {}
        self.needs: dict[str, Mapping[str, int]] = {}
        self.serving: dict[str, int] = {}
        self.posted: list[Event] = []
        self.shown = Look()
        self.looks = 0
        self.closing = False
        self.learned = Learned()
        self.watch = Watch(self, self, self.learned, config or MemoryConfig(), capacity)

    async def look(self, roots: Mapping[str, int]) -> Look:
        """Show the machine as it is now."""
        self.looks += 1
        return self.shown

    def views(self) -> list[ModelView]:
        """The models as the scheduler would show them."""
        return [self._view(model, state) for model, state in self.states.items()]

    def pid(self, model: str) -> int | None:
        """Every model has a process."""
        return 1

    def post(self, event: Event) -> None:
        """Take an event down."""
        self.posted.append(event)

    def news(self) -> list[Event]:
        """What was posted since the last time."""
        posted, self.posted = self.posted, []
        return posted

    async def shows(self, shown: Look, **states: State) -> list[Event]:
        """Let models be in these states and the machine as `shown`; return what was posted."""
        for model, state in states.items():
            self.becomes(model, state)
        self.shown = shown
        await self.watch.look()
        return self.news()

    def becomes(self, model: str, state: State) -> None:
        """Let a model change its state."""
        before = self.states.get(model, State.STOPPED)
        self.states[model] = state
        if state is not before:
            self.watch.moved(self._view(model, state), before)

    def _view(self, model: str, state: State) -> ModelView:
        return view_of(
            model,
            state=state,
            generation=1,
            in_flight=self.serving.get(model, 0),
            need=self.needs.get(model),
        )
