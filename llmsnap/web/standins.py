"""Names that stand for others: the pins of the active profile, and selectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from llmsnap.config.schema import Config
from llmsnap.core.messages import ModelView
from llmsnap.errors import ModelNotFound, NotFound
from llmsnap.web.selectors import Selector, StateOf


class StandIns:
    """What such a name means now. A pin comes first, and its target may be a selector."""

    def __init__(self, config: Config, view: Callable[[str], ModelView]) -> None:
        self.active: str | None = None
        """The profile whose pins count; None: no pins do."""
        self.pins: Mapping[str, str | None] = {}
        self.selectors: dict[str, Selector] = {}
        self.names: frozenset[str] = frozenset()
        """Those that stand for others now."""
        self._view = view
        self._watchers: list[Callable[[], None]] = []
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        """Go by another configuration; the active profile stays so, if it is still there."""
        state_of, before = _states(config.names(), self._view), self.selectors
        self.profiles = config.profiles
        self.selectors = {
            name: Selector(selector, state_of) for name, selector in config.selectors.items()
        }
        for name in before.keys() & self.selectors.keys():
            self.selectors[name].in_flight = before[name].in_flight
        self.activate(self.active if self.active in self.profiles else None)

    @contextmanager
    def standing_in(self, name: str) -> Iterator[str]:
        """Yield the name that is served for `name`, which counts as in use within the block.

        Raises ModelNotFound when the profile makes it unavailable.
        """
        target = self.pinned(name)
        selector = self.selectors.get(target)
        if selector is None:
            yield target
            return
        chosen = selector.pick()
        selector.in_flight[chosen] += 1
        try:
            yield chosen
        finally:
            selector.in_flight[chosen] -= 1

    def selector_of(self, name: str) -> str:
        """Return the selector that `name` means; empty: none."""
        target = self.pinned(name)
        return target if target in self.selectors else ""

    def pinned(self, name: str) -> str:
        """Return what the active profile has for `name`, itself if nothing.

        Raises ModelNotFound when the profile makes it unavailable.
        """
        target = self.pins.get(name, name)
        if not target:
            message = f"profile {self.active!r} makes {name!r} unavailable; activate another one"
            raise ModelNotFound(message)
        return target

    def pinned_names(self, names: Mapping[str, str]) -> Mapping[str, str]:
        """Return `names`, each with the model that it means, as the active profile changes them.

        Pins to nothing and to selectors lead nowhere.
        """
        if not self.pins:
            return names
        rest = {name: id_ for name, id_ in names.items() if name not in self.pins}
        pinned = {
            pin: names[target] for pin, target in self.pins.items() if target and target in names
        }
        return rest | pinned

    def activate(self, name: str | None) -> None:
        """Make the pins of a profile count, or those of none. Raises NotFound."""
        if name is not None and name not in self.profiles:
            raise NotFound(f"no profile {name!r}; see /api/profiles")
        self.active = name
        self.pins = {} if name is None else self.profiles[name].pins
        self.names = frozenset({*self.selectors, *self.pins})
        for watcher in self._watchers:
            watcher()

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change of the active profile."""
        self._watchers.append(callback)


def _states(names: Mapping[str, str], view: Callable[[str], ModelView]) -> StateOf:
    return lambda name: view(names[name]).state if name in names else None
