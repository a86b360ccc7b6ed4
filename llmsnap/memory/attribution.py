"""Whose the memory is: what each model holds of each device, and what others do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmsnap.config.memory import HOST
from llmsnap.memory.capacity import SWAP
from llmsnap.memory.device import Reading
from llmsnap.memory.kernel import Usage
from llmsnap.memory.machine import Look, Tree

Bytes = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where the models with a process are; those that are asleep are in none of these."""

    up: frozenset[str] = frozenset()
    coming: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()

    @property
    def on_devices(self) -> frozenset[str]:
        """Those whose bytes are on their devices, or may be."""
        return self.up | self.moving

    @property
    def moving(self) -> frozenset[str]:
        """Those that take memory now, or give it back."""
        return self.coming | self.leaving

    def less(self, model: str) -> Whereabouts:
        """Return the same without `model`, which isn't on its devices."""
        gone = {model}
        return Whereabouts(
            up=self.up - gone, coming=self.coming - gone, leaving=self.leaving - gone
        )

    def burying(self, dead: frozenset[str]) -> Whereabouts:
        """Return the same, with models whose processes are dead on their way out."""
        leaving = self.leaving | (self.on_devices & dead)
        return Whereabouts(up=self.up - dead, coming=self.coming - dead, leaving=leaving)


@dataclass(frozen=True, slots=True)
class Attributed:
    """Who holds what, as far as it is known."""

    held: Mapping[str, Bytes] = field(default_factory=dict)
    """Bytes a device, by model; `swap` is one of the devices here."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Bytes a device that aren't held by models which are up, or on their way."""
    unlisted: Mapping[str, int] = field(default_factory=dict)
    """Bytes a GPU that were used, but by no process that is listed, when nobody moved last."""
    unclear: frozenset[str] = frozenset()
    """Models that are up, of which it isn't known what they hold of some GPU."""


class Attribution:
    """Says who holds what, look after look."""

    def __init__(self) -> None:
        self._differences: dict[str, Differences] = {}
        self._others: Bytes = {}
        self._unlisted: Bytes = {}

    def of(
        self, look: Look, where: Whereabouts, needs: Mapping[str, Mapping[str, int]] | None = None
    ) -> Attributed:
        """Return who holds what; `needs` are bytes a device that models are thought to need.

        A GPU that is missing, or of which there is only old news, is left as it was.
        """
        needs = needs or {}
        # Nobody may have said so yet.
        where = where.burying(frozenset(m for m, tree in look.trees.items() if not tree.pids))
        held = {model: _in_ram(tree.usage) for model, tree in look.trees.items()}
        for device, reading in look.devices.items():
            if device in look.stale or device == SWAP:
                continue
            if device != HOST:
                thought = {model: need.get(device, 0) for model, need in needs.items()}
                self._difference_on(device).take(reading.used_bytes, where, thought)
            if device == HOST:
                ours = [tree for model, tree in look.trees.items() if model in where.on_devices]
                used_by_us = sum(taken_bytes(tree.usage) for tree in ours)
                self._others[HOST] = max(0, reading.used_bytes - used_by_us)
            elif _is_silent(reading):
                self._by_difference(reading, held, where)
            else:
                self._by_process(reading, look.trees, held, where)
        return Attributed(
            held={model: _without_zeros(bytes_) for model, bytes_ in held.items()},
            others=dict(self._others),
            unlisted=dict(self._unlisted),
            unclear=self._unclear(look, where),
        )

    def _unclear(self, look: Look, where: Whereabouts) -> frozenset[str]:
        silent = [device for device, seen in look.devices.items() if _is_silent(seen)]
        differences = [self._difference_on(device) for device in silent]
        return frozenset(
            model for model in where.up if not all(d.measured(model) for d in differences)
        )

    def _by_process(
        self,
        reading: Reading,
        trees: Mapping[str, Tree],
        held: Mapping[str, Bytes],
        where: Whereabouts,
    ) -> None:
        device, listed = reading.device, reading.processes or {}
        for model, tree in trees.items():
            held[model][device] = sum(listed.get(pid, 0) for pid in tree.pids)
        used_by_us = sum(held[model][device] for model in held if model in where.on_devices)
        self._difference_on(device).know({m: held[m][device] for m in held if m in where.up})
        unlisted = unlisted_bytes(reading)
        if not where.leaving or device not in self._unlisted:
            self._unlisted[device] = unlisted
        # While models leave, what isn't listed may be theirs: somebody waits for it to come back.
        usual = min(unlisted, self._unlisted[device])
        self._others[device] = max(0, sum(listed.values()) - used_by_us + usual)

    def lose(self, lost: Mapping[str, int]) -> None:
        """Give up what models that left haven't given back, in bytes a device."""
        for device in lost.keys() & self._unlisted.keys():
            self._unlisted[device] += lost[device]

    def _by_difference(
        self, reading: Reading, held: Mapping[str, Bytes], where: Whereabouts
    ) -> None:
        device = reading.device
        differences = self._difference_on(device)
        for model in held:
            held[model][device] = differences.taken.get(model, 0)
        if not where.moving:
            self._others[device] = max(0, reading.used_bytes - sum(differences.taken.values()))

    def _difference_on(self, device: str) -> Differences:
        return self._differences.setdefault(device, Differences())


class Differences:
    """What models took of one GPU whose driver doesn't tell: how much more was used when they came.

    Of two that moved at the same time nobody can say who took what; each is thought to hold what it
    needs then.
    """

    def __init__(self) -> None:
        self.taken: Bytes = {}
        """By model; those that are on their way in aren't here yet."""
        self._before: Bytes = {}
        """What was used when those came that are on their way in."""
        self._quiet: int | None = None
        """What was used last, if nobody moved then: nobody who comes now has taken any of it."""
        self._guessed: set[str] = set()
        """Those who moved beside others, and of whom it isn't known what they took."""

    def measured(self, model: str) -> bool:
        """Whether it was seen what `model` took."""
        return model in self.taken and model not in self._guessed

    def know(self, taken: Mapping[str, int]) -> None:
        """Take in what models that are up hold, by the driver's own word."""
        self.taken.update(taken)
        self._guessed -= taken.keys()

    def take(self, used_bytes: int, where: Whereabouts, thought: Mapping[str, int]) -> None:
        """Take in how much is used now; `thought` is what models are thought to need of it."""
        for gone in self.taken.keys() - where.on_devices:
            del self.taken[gone]
        arrived = where.up - self.taken.keys()
        fresh = (arrived | where.coming) - self._before.keys()
        if len(arrived | where.moving) > 1 or (fresh and self._quiet is None):
            self._guessed |= arrived | where.coming
        for model in fresh:
            # When it is seen, it may have taken something already.
            self._before[model] = used_bytes if self._quiet is None else self._quiet
        for model in arrived:
            grown = max(0, used_bytes - self._before[model])
            is_guess = model in self._guessed
            self.taken[model] = min(thought.get(model, 0), used_bytes) if is_guess else grown
        for model in self._before.keys() - where.coming:
            del self._before[model]
        self._guessed &= where.on_devices
        self._quiet = None if where.moving else used_bytes


def unlisted_bytes(reading: Reading) -> int:
    """Return what is used of a GPU, but by no process that is listed: late memory is there."""
    return reading.used_bytes - sum((reading.processes or {}).values())


def taken_bytes(usage: Usage) -> int:
    """Return what nobody else can have of RAM.

    The kernel counts pages of files as available, mapped or not.
    """
    return usage.rss_bytes - usage.file_bytes


def need_of(held: Mapping[str, int], usage: Usage) -> Bytes:
    """Return what a model that is awake needs of each device, by what it holds.

    In RAM that is all it has there, pages of its file included: it would be slow without them. But
    what a GPU has is read from the file once, so of such a model only its own pages count.
    """
    need = {device: size for device, size in held.items() if device not in (HOST, SWAP) and size}
    need[HOST] = taken_bytes(usage) if need else usage.rss_bytes
    return need


def _is_silent(reading: Reading) -> bool:
    """Whether it is of a GPU whose driver doesn't tell bytes by process."""
    return reading.device not in (HOST, SWAP) and reading.processes is None


def _in_ram(usage: Usage) -> Bytes:
    return {HOST: usage.rss_bytes, SWAP: usage.swap_bytes}


def _without_zeros(bytes_: Mapping[str, int]) -> Bytes:
    return {device: size for device, size in bytes_.items() if size}
