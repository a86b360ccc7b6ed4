"""What llmsnap's rules are compared with: how other proxies decide, on the same events and orders.

Nothing fails in the simulation, so neither of them has to know what to do then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import (
    Action,
    Admit,
    Event,
    ModelChanged,
    ModelSpec,
    RequestArrived,
    RequestFinished,
    Sleep,
    Start,
    Stop,
    Wake,
)

_OUT: Final = (State.STOPPED, State.ASLEEP)
_LEAVING: Final = (State.SLEEPING, State.STOPPING)
_NEXT: Final = {
    Trigger.READY: State.READY,
    Trigger.WOKEN: State.READY,
    Trigger.SLEPT: State.ASLEEP,
    Trigger.EXITED: State.STOPPED,
}


@dataclass(slots=True)
class _Slot:
    """One model."""

    spec: ModelSpec
    state: State = State.STOPPED
    generation: int = 0
    serving: set[int] = field(default_factory=set)
    used_at: float = -inf
    was_asleep: bool = False
    """Whether it is being stopped out of its sleep."""

    @property
    def need(self) -> Mapping[str, int]:
        """Bytes a device."""
        assert self.spec.need is not None
        return self.spec.need

    @property
    def on_devices(self) -> bool:
        """Whether it holds what it needs."""
        leaves_tier = self.state is State.STOPPING and self.was_asleep
        return self.state not in _OUT and not leaves_tier

    @property
    def in_tier(self) -> bool:
        """Whether it holds RAM as a sleeper."""
        leaves_tier = self.state is State.STOPPING and self.was_asleep
        return leaves_tier or self.state in (State.SLEEPING, State.ASLEEP, State.WAKING)

    @property
    def is_idle(self) -> bool:
        """Whether it is up and nobody uses it."""
        return self.state is State.READY and not self.serving


class Rival:
    """What both have in common: states, a queue, and ways out and in."""

    next_deadline = inf
    """Neither of them waits for a moment."""

    def __init__(
        self,
        specs: Iterable[ModelSpec],
        capacity: Mapping[str, int],
        ram: int,
        clock: Callable[[], float],
    ) -> None:
        self._slots = {spec.name: _Slot(spec) for spec in specs}
        self._capacity = capacity
        self._ram = ram
        self._clock = clock
        self._queue: dict[int, _Slot] = {}
        self._actions: list[Action] = []

    def handle(self, event: Event) -> list[Action]:
        """Take in one event; return what must now be done."""
        self._actions = []
        match event:
            case RequestArrived(ticket, model):
                self._queue[ticket] = self._slots[model]
            case RequestFinished(ticket):
                slot = next(slot for slot in self._slots.values() if ticket in slot.serving)
                slot.serving.remove(ticket)
                slot.used_at = self._clock()
            case ModelChanged(model, _, trigger):
                slot = self._slots[model]
                slot.state = _NEXT[trigger]
                if slot.state is State.READY:
                    slot.used_at = self._clock()
        self._dispatch()
        return self._actions

    def _dispatch(self) -> None:
        raise NotImplementedError

    def _admit(self, ticket: int) -> None:
        self._queue.pop(ticket).serving.add(ticket)
        self._actions.append(Admit(ticket))

    def _load(self, slot: _Slot) -> None:
        if slot.state is State.ASLEEP:
            slot.state = State.WAKING
            self._actions.append(Wake(slot.spec.name, slot.generation))
        else:
            slot.state, slot.generation = State.STARTING, slot.generation + 1
            self._actions.append(Start(slot.spec.name, slot.generation))

    def _put_out(self, slot: _Slot) -> None:
        """Put an idle model to sleep, or stop it; nothing yet while RAM for it becomes free."""
        held = [other for other in self._slots.values() if other.in_tier]
        short = slot.spec.tier_bytes + sum(o.spec.tier_bytes for o in held) - self._ram
        if slot.spec.can_sleep and short <= 0:
            slot.state = State.SLEEPING
            self._actions.append(Sleep(slot.spec.name, slot.generation))
            return
        # What leaves the tier already counts.
        short -= sum(o.spec.tier_bytes for o in held if o.state in (State.WAKING, State.STOPPING))
        colder: list[_Slot] = []
        for other in sorted(held, key=lambda other: other.used_at):
            if short > 0 and self._may_lose_its_sleep(other, slot):
                colder.append(other)
                short -= other.spec.tier_bytes
        for victim in colder if slot.spec.can_sleep and short <= 0 else [slot]:
            self._stop(victim)

    def _may_lose_its_sleep(self, sleeper: _Slot, newcomer: _Slot) -> bool:
        is_wanted = any(slot is sleeper for slot in self._queue.values())
        is_colder = sleeper.used_at < newcomer.used_at
        return sleeper.state is State.ASLEEP and is_colder and not is_wanted

    def _stop(self, slot: _Slot) -> None:
        slot.was_asleep, slot.state = slot.state is State.ASLEEP, State.STOPPING
        self._actions.append(Stop(slot.spec.name, slot.generation))


class OneAtATime(Rival):
    """One model is up, and whoever names it goes in.

    When nobody uses it, the oldest request that waits decides which model is next.
    """

    _target: _Slot | None = None

    def _dispatch(self) -> None:
        if self._target is not None and self._target.state is State.READY:
            self._target = None
        for ticket, slot in list(self._queue.items()):
            if self._target is not None:
                break
            if slot.state is State.READY:
                self._admit(ticket)
            elif slot.state in _OUT and all(
                other.is_idle or other.state in _OUT for other in self._slots.values()
            ):
                self._target = slot
        if self._target is not None:
            self._change_to(self._target)

    def _change_to(self, target: _Slot) -> None:
        for other in self._slots.values():
            if other.is_idle and other is not target:
                self._put_out(other)
        if target.state in _OUT and all(slot.state in _OUT for slot in self._slots.values()):
            self._load(target)


class LeastRecentlyUsed(Rival):
    """As many are up as fit; who was idle longest makes room. Nobody's turn is kept."""

    def _dispatch(self) -> None:
        for ticket, slot in list(self._queue.items()):
            if slot.state is State.READY:
                self._admit(ticket)
            elif slot.state in _OUT:
                self._want(slot)

    def _want(self, wanted: _Slot) -> None:
        short = self._short(wanted)
        if not short:
            self._load(wanted)
        elif not any(slot.state in _LEAVING for slot in self._slots.values()):
            for victim in self._victims(short):
                self._put_out(victim)

    def _short(self, wanted: _Slot) -> dict[str, int]:
        short = {}
        for device, size in wanted.need.items():
            held = sum(s.need.get(device, 0) for s in self._slots.values() if s.on_devices)
            if (missing := size + held - self._capacity[device]) > 0:
                short[device] = missing
        return short

    def _victims(self, short: Mapping[str, int]) -> list[_Slot]:
        """Return idle models that free what is short, longest idle first; none when they don't."""
        idle = [
            s for s in self._slots.values() if s.is_idle and not short.keys().isdisjoint(s.need)
        ]
        chosen: list[_Slot] = []
        for slot in sorted(idle, key=lambda slot: slot.used_at):
            if not _covers(chosen, short):
                chosen.append(slot)
        if not _covers(chosen, short):
            return []
        for slot in reversed(list(chosen)):
            if _covers(rest := [other for other in chosen if other is not slot], short):
                chosen = rest
        return chosen


def _covers(slots: Iterable[_Slot], short: Mapping[str, int]) -> bool:
    slots = list(slots)
    return all(
        sum(slot.need.get(device, 0) for slot in slots) >= size for device, size in short.items()
    )
