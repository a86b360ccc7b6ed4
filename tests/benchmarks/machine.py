"""A simulated machine with simulated engines, which does what a scheduler orders.

Time is simulated; bytes and seconds of the hosts are those that were measured or are usual. The
machine keeps books of its own and fails when a scheduler loads more than there is room for.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, Protocol

from llmsnap.core.lifecycle import Trigger
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
    Tick,
    Wake,
)
from tests.benchmarks.traces import Turn, Visit

GIB: Final = 2**30
_PLACES: Final = 2
"""Answers that an engine computes at once."""
_STOP_S: Final = 0.5


class Decides(Protocol):
    """A scheduler: llmsnap's own, or a rival."""

    @property
    def next_deadline(self) -> float: ...

    def handle(self, event: Event) -> list[Action]: ...


@dataclass(frozen=True, slots=True)
class Model:
    """One model, and how long its ways take."""

    spec: ModelSpec
    sleep_s: float
    wake_s: float
    start_s: float

    @property
    def need(self) -> Mapping[str, int]:
        """Bytes a device."""
        assert self.spec.need is not None
        return self.spec.need


@dataclass(frozen=True, slots=True)
class Host:
    """One machine: its models, its devices, and the RAM for what sleeps."""

    name: str
    models: tuple[Model, ...]
    capacity: Mapping[str, int]
    ram: int

    def without_sleep(self) -> Host:
        """Return the same machine where nothing can sleep."""
        models = (
            replace(
                model,
                spec=replace(model.spec, can_sleep=False, round_trip_s=_STOP_S + model.start_s),
            )
            for model in self.models
        )
        return replace(self, models=tuple(models))


@dataclass(slots=True)
class _Request:
    turns: Sequence[Turn]
    """This one first, then what the client asks next."""
    arrived_at: float
    left_s: float
    began_at: float | None = None
    """When the engine began with it, for the first time."""
    running_since: float | None = None
    paused_s: float = 0.0
    paused_at: float | None = None


@dataclass(slots=True)
class Figures:
    """What a run came to; waits are from the arrival until the engine is on it, plus pauses."""

    waits: list[float]
    swaps: int
    """Starts and wakes."""
    pauses: int
    lost: float
    """Share of the devices' time in which memory moved and nothing was computed."""
    total_s: float

    def quantile(self, share: float) -> float:
        """Return the wait that this share of all requests doesn't exceed."""
        return self.waits[min(len(self.waits) - 1, int(share * len(self.waits)))]

    def summary(self) -> dict[str, float]:
        """Return what the table shows."""
        return {
            "mean": sum(self.waits) / len(self.waits),
            "p50": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "p99": self.quantile(0.99),
            "longest": self.waits[-1],
            "swaps": float(self.swaps),
            "pauses": float(self.pauses),
            "lost": self.lost,
            "total": self.total_s,
        }


@dataclass(slots=True)
class _Engine:
    """The server of one model: who waits in it, and who is being answered."""

    model: Model
    up: bool = False
    asleep: bool = False
    moving: bool = False
    waiting: list[int] = field(default_factory=list)
    running: set[int] = field(default_factory=set)


class Machine:
    """Plays one trace on one host. `now` is its clock."""

    def __init__(self, host: Host) -> None:
        self.now = 0.0
        self._host = host
        self._engines = {model.spec.name: _Engine(model) for model in host.models}
        self._requests: dict[int, _Request] = {}
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._tickets = itertools.count(1)
        self._used: Counter[str] = Counter()
        self._tier = 0
        self._lost = dict.fromkeys(host.capacity, 0.0)
        self._tally: Counter[str] = Counter()
        self._scheduler: Decides

    def play(self, scheduler: Decides, visits: Iterable[Visit]) -> Figures:
        """Let all clients come and be served; return how that went."""
        self._scheduler = scheduler
        for visit in visits:
            self._at(visit.at_s, self._arrive, visit.turns)
        ended_at = 0.0
        while self._heap or scheduler.next_deadline < inf:
            if self._heap and self._heap[0][0] <= scheduler.next_deadline:
                moment, _, act, arguments = heapq.heappop(self._heap)
                self._pass(moment)
                act(*arguments)
                ended_at = moment
            else:
                self._pass(scheduler.next_deadline)
                self._feed(Tick())
        return self._figures(ended_at)

    def _figures(self, ended_at: float) -> Figures:
        waits = []
        for ticket, request in self._requests.items():
            assert request.began_at is not None, f"request {ticket} was never served"
            waits.append(request.began_at - request.arrived_at + request.paused_s)
        devices = len(self._host.capacity)
        return Figures(
            sorted(waits),
            self._tally["swaps"],
            self._tally["pauses"],
            sum(self._lost.values()) / devices / ended_at,
            ended_at,
        )

    # ---- time ----------------------------------------------------------------------------------

    def _at(self, moment: float, act: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._heap, (moment, next(self._order), act, arguments))

    def _pass(self, moment: float) -> None:
        """Let time go on to `moment`; a device loses it when memory moves and nothing runs."""
        moving: set[str] = set()
        busy: set[str] = set()
        for engine in self._engines.values():
            if engine.moving:
                moving |= engine.model.need.keys()
            if engine.running:
                busy |= engine.model.need.keys()
        for device in moving - busy:
            self._lost[device] += moment - self.now
        self.now = moment

    def _feed(self, event: Event) -> None:
        for action in self._scheduler.handle(event):
            self._do(action)

    # ---- clients -------------------------------------------------------------------------------

    def _arrive(self, turns: Sequence[Turn]) -> None:
        ticket = next(self._tickets)
        self._requests[ticket] = _Request(turns, self.now, turns[0].seconds)
        self._feed(RequestArrived(ticket, turns[0].model))

    def _fill(self, engine: _Engine) -> None:
        """Let the engine begin with as many as it has places for."""
        while engine.up and engine.waiting and len(engine.running) < _PLACES:
            self._run(engine, engine.waiting.pop(0))

    def _run(self, engine: _Engine, ticket: int) -> None:
        request = self._requests[ticket]
        engine.running.add(ticket)
        if request.began_at is None:
            request.began_at = self.now
        if request.paused_at is not None:
            request.paused_s += self.now - request.paused_at
            request.paused_at = None
        request.running_since = self.now
        self._at(self.now + request.left_s, self._end, engine, ticket, self.now)

    def _end(self, engine: _Engine, ticket: int, since: float) -> None:
        request = self._requests[ticket]
        if request.running_since != since:
            return  # it was paused meanwhile
        request.running_since = None
        engine.running.remove(ticket)
        self._fill(engine)
        this, *others = request.turns
        if others:
            self._at(self.now + this.pause_s, self._arrive, others)
        self._feed(RequestFinished(ticket))

    # ---- orders --------------------------------------------------------------------------------

    def _do(self, action: Action) -> None:
        match action:
            case Admit(ticket):
                engine = self._engines[self._requests[ticket].turns[0].model]
                engine.waiting.append(ticket)
                self._fill(engine)
            case Start(model, generation):
                self._load(self._engines[model])
                self._move(model, self._engines[model].model.start_s, generation, Trigger.READY)
            case Wake(model, generation):
                self._load(self._engines[model])
                self._move(model, self._engines[model].model.wake_s, generation, Trigger.WOKEN)
            case Sleep(model, generation):
                self._put_to_sleep(self._engines[model])
                self._move(model, self._engines[model].model.sleep_s, generation, Trigger.SLEPT)
            case Stop(model, generation):
                engine = self._engines[model]
                assert not engine.running, f"{model} is stopped in the middle of an answer"
                engine.up = False
                self._move(model, _STOP_S, generation, Trigger.EXITED)
            case _:
                raise AssertionError(f"nothing fails here, and yet: {action}")

    def _load(self, engine: _Engine) -> None:
        self._tally["swaps"] += 1
        self._used.update(engine.model.need)
        for device in engine.model.need:
            assert self._used[device] <= self._host.capacity[device], f"{device} is overcommitted"

    def _put_to_sleep(self, engine: _Engine) -> None:
        self._tier += engine.model.spec.tier_bytes
        assert self._tier <= self._host.ram, "the RAM for sleepers is overcommitted"
        engine.up = False
        for ticket in sorted(engine.running):
            request = self._requests[ticket]
            assert request.running_since is not None
            request.left_s -= self.now - request.running_since
            request.running_since, request.paused_at = None, self.now
            self._tally["pauses"] += 1
        engine.waiting[:0] = sorted(engine.running)
        engine.running.clear()

    def _move(self, model: str, seconds: float, generation: int, trigger: Trigger) -> None:
        self._engines[model].moving = True
        self._at(self.now + seconds, self._moved, self._engines[model], generation, trigger)

    def _moved(self, engine: _Engine, generation: int, trigger: Trigger) -> None:
        spec = engine.model.spec
        engine.moving = False
        if trigger is Trigger.WOKEN or (trigger is Trigger.EXITED and engine.asleep):
            self._tier -= spec.tier_bytes
        elif trigger in (Trigger.SLEPT, Trigger.EXITED):
            self._used.subtract(engine.model.need)
        engine.asleep = trigger is Trigger.SLEPT
        engine.up = trigger in (Trigger.READY, Trigger.WOKEN)
        self._feed(ModelChanged(spec.name, generation, trigger))
        self._fill(engine)


# ---- hosts -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pace:
    """GiB a second, and seconds on top."""

    out: float = 4.0
    back: float = 6.0
    cold: float = 1.0
    boot_s: float = 2.0


def home() -> Host:
    """One card of 24 GB in a good desktop: a round trip takes 1-8 s."""
    sizes = {"big": 20, "coder": 14, "chat": 9, "small": 5, "vision": 8, "embed": 2}
    models = (_model(name, size, "gpu0") for name, size in sizes.items())
    return Host("home", tuple(models), _gib({"gpu0": 23.5}), 64 * GIB)


def slow() -> Host:
    """One card of 80 GB behind a slow bus: a round trip takes 7-55 s."""
    sizes = {"a": 60, "b": 44, "c": 40, "d": 30, "e": 20, "f": 8}
    pace = _Pace(out=2.2, back=2.2, cold=0.5)
    models = (_model(name, size, "gpu0", pace=pace) for name, size in sizes.items())
    return Host("slow", tuple(models), _gib({"gpu0": 79.0}), 256 * GIB)


def two() -> Host:
    """Two cards of 24 GB, models that take both, and RAM for a few of them only."""
    small = {"a": 14, "b": 9, "c": 5}
    models = [
        _model(f"g{place}{name}", size, f"gpu{place}")
        for place in (0, 1)
        for name, size in small.items()
    ]
    models += [_model("wide", 40, "gpu0", "gpu1"), _model("mid", 24, "gpu0", "gpu1")]
    return Host("two", tuple(models), _gib({"gpu0": 23.5, "gpu1": 23.5}), 48 * GIB)


def cpu() -> Host:
    """No GPU, 3 GiB of memory for models, which sleep in swap, and may be paused."""
    sizes = {"a": 2.1, "b": 1.3, "c": 1.3, "d": 1.3, "e": 0.7, "f": 0.4}
    pace = _Pace(out=2.3, back=3.0, cold=1.9, boot_s=0.3)
    models = (_model(name, size, "host", pace=pace, can_pause=True) for name, size in sizes.items())
    return Host("cpu", tuple(models), _gib({"host": 3.0}), 16 * GIB)


HOSTS: Final = {make.__name__: make for make in (home, slow, two, cpu)}


def _model(
    name: str, gib: float, *devices: str, pace: _Pace = _Pace(), can_pause: bool = False
) -> Model:
    sleep_s, wake_s = gib / pace.out + 0.05, gib / pace.back + 0.05
    spec = ModelSpec(
        name=name,
        devices=devices,
        need=_gib({device: gib / len(devices) for device in devices}),
        tier_bytes=round(gib * GIB),
        can_sleep=True,
        can_pause=can_pause,
        round_trip_s=sleep_s + wake_s,
    )
    return Model(spec, sleep_s, wake_s, gib / pace.cold + pace.boot_s)


def _gib(sizes: Mapping[str, float]) -> dict[str, int]:
    return {device: round(size * GIB) for device, size in sizes.items()}
