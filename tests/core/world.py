"""A machine full of accidents for the scheduler to be walked through, with books of its own.

It knows nothing of the rules. It does what it is told, keeps count of what that does to the memory
and to the clients, and fails the test when the scheduler orders something that can't be right.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from llmsnap.config.expressions import parse
from llmsnap.config.sections import GroupConfig
from llmsnap.core.cause import Why
from llmsnap.core.constraints import Constraints, Free, GroupRules
from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.matrix import MatrixRules
from llmsnap.core.messages import (
    AbilityChanged,
    Abort,
    Action,
    Admit,
    Adopted,
    Event,
    ForeignChanged,
    Found,
    KeepRequested,
    LackChanged,
    ModelChanged,
    ModelDeaf,
    ModelGoing,
    ModelSpec,
    NeedChanged,
    NeedEstimated,
    PageOut,
    Reconfigured,
    Reject,
    ReleaseRequested,
    RequestArrived,
    RequestFinished,
    ResumeRequested,
    ShutdownRequested,
    Sleep,
    SleepRequested,
    Start,
    Stop,
    Tick,
    UnloadRequested,
    Wake,
)
from llmsnap.core.schedule import Schedule
from llmsnap.core.scheduler import Scheduler
from llmsnap.errors import LlmsnapError, ModelIncomplete, StartFailed, UpstreamLost

GIB = 1024**3
MOST_REFUSED_WAKES = 4
"""So many in a row, and a model is started cold (R4)."""


@dataclass
class Process:
    """One generation of a model, as the machine sees it."""

    generation: int
    uses: dict[str, int]
    """Bytes that it was granted, a device."""
    alone: bool
    state: str = "starting"
    on_devices: bool = True
    in_tiers: dict[str, int] = field(default_factory=dict)
    refused_wakes: int = 0
    """In a row."""


@dataclass
class Client:
    """One request, as its client sees it."""

    model: str
    state: str = "waiting"
    seconds: float = 1.0


@dataclass
class Odds:
    """How likely accidents are in one world."""

    fail: float = 0.0
    leave: float = 0.0
    late_s: float = 0.0
    grow: float = 0.0
    edit: float = 0.0


@dataclass
class World:
    """One seeded run."""

    rng: random.Random
    specs: dict[str, ModelSpec]
    capacity: dict[str, int]
    tiers: dict[str, int]
    constraints: Constraints
    odds: Odds
    now: float = 0.0
    heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        default_factory=list
    )
    processes: dict[str, Process] = field(default_factory=dict)
    clients: dict[int, Client] = field(default_factory=dict)
    foreign: Counter[str] = field(default_factory=Counter)
    unloading: set[str] = field(default_factory=set)
    asked_to_sleep: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    released: bool = False
    adopting: bool = False
    shutting_down: bool = False
    tally: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.order = itertools.count()
        self.numbers = itertools.count(1)
        self.schedule = Schedule(max_wait_s=self.rng.choice([0.0, 60.0, 120.0, 600.0]))
        self.scheduler = Scheduler(
            self.specs.values(),
            capacity=self.capacity,
            tiers=self.tiers,
            schedule=self.schedule,
            constraints=self.constraints,
            clock=lambda: self.now,
        )
        self.alarm = inf

    # ---- time ----------------------------------------------------------------------------------

    def after(self, seconds: float, act: Callable[..., None], *args: Any) -> None:
        """Let something happen in `seconds`."""
        heapq.heappush(self.heap, (self.now + seconds, next(self.order), act, args))

    def perhaps(self, chance: float, within_s: float, act: Callable[..., None], *args: Any) -> None:
        """Let something happen soon, or not at all."""
        if self.rng.random() < chance:
            self.after(self.rng.uniform(0.0, within_s), act, *args)

    def run(self) -> None:
        """Let everything happen, with the scheduler's alarms in between."""
        while self.heap or self.alarm < inf:
            if self.heap and self.heap[0][0] <= self.alarm:
                self.now, _, act, args = heapq.heappop(self.heap)
                act(*args)
            else:
                self.now = self.alarm
                self.feed(Tick())

    def feed(self, event: Event) -> None:
        """Tell the scheduler, and do what it says."""
        self.tally["events"] += 1
        self.tally[type(event).__name__] += 1
        actions = self.scheduler.handle(event)
        self.scheduler.check_invariants()
        for action in actions:
            self.do(action)
        self.alarm = self.scheduler.next_deadline
        assert self.alarm > self.now
        if self.rng.random() < 0.2:
            self.check_books()
        if self.rng.random() < 0.005:
            self.check_alarm()

    def check_alarm(self) -> None:
        """Nothing may happen by the mere passage of time before the alarm: none is forgotten."""
        self.tally["alarms checked"] += 1
        now = self.now
        double = copy.deepcopy(self.scheduler, {id(self.scheduler.history): deque()})
        span = min(self.alarm, now + 1000.0) - now
        for part in (0.0, 0.5, 0.999):
            self.now = now + part * span
            assert double.handle(Tick()) == [], f"an alarm was forgotten at {self.now}"
        self.now = now

    # ---- what the scheduler orders -------------------------------------------------------------

    def do(self, action: Action) -> None:
        """Carry out one order; fail when it makes no sense."""
        match action:
            case Admit(ticket):
                self.admit(ticket)
            case Reject(ticket, error):
                self.end(ticket, "waiting", f"rejected {type(error).__name__}")
            case Abort(ticket, _):
                self.end(ticket, "served", "aborted")
            case Start(model, generation, cause):
                self.tally["recalls"] += cause.why is Why.DEFAULT
                self.start(model, generation)
            case Wake(model, generation, cause):
                self.tally["recalls"] += cause.why is Why.DEFAULT
                self.wake(model, generation)
            case Sleep(model, generation):
                self.sleep(model, generation)
            case PageOut(model, generation):
                self.page_out(model, generation)
            case Stop(model, generation):
                self.stop(model, generation)

    def admit(self, ticket: int) -> None:
        """Let a client through; its model must be there."""
        client = self.clients[ticket]
        assert client.state == "waiting", f"{ticket} is admitted, but was {client.state}"
        assert self.processes[client.model].state == "ready"
        client.state = "served"
        self.tally["admitted"] += 1
        self.after(client.seconds, self.finish, ticket)

    def end(self, ticket: int, state: str, how: str) -> None:
        """A client gets an error, once."""
        client = self.clients[ticket]
        assert client.state == state, f"{ticket} is {how}, but was {client.state}"
        client.state = "ended"
        self.tally[how] += 1

    def start(self, model: str, generation: int) -> None:
        """Begin a process, of which there is none."""
        assert not self.shutting_down, "a start while shutting down"
        assert not self.released, "a start while nothing may load"
        assert self.specs[model].lack is None, "a start that is bound to fail"
        assert model not in self.processes, f"two processes of {model}"
        self.load(model, Process(generation, {}, alone=False))
        fate = self.fate(model)
        self.after(self.rng.uniform(0.5, 8), self.loaded, model, generation, "ready", fate)

    def wake(self, model: str, generation: int) -> None:
        """Begin to wake a process that sleeps."""
        process = self.processes[model]
        assert not self.released or self.shutting_down, "a wake while nothing may load"
        assert process.state in ("asleep", "paging")
        assert process.generation == generation
        self.tally["wakes while paging"] += process.state == "paging"
        self.load(model, process)
        process.state = "waking"
        fate = self.fate(model)
        if fate != "well" and self.rng.random() < 0.4:
            fate = "refused"
        self.after(self.rng.uniform(0.2, 3), self.loaded, model, generation, "woken", fate)

    def load(self, model: str, process: Process) -> None:
        """Take the memory, which must be there."""
        spec = self.specs[model]
        up = [name for name, other in self.processes.items() if other.on_devices and name != model]
        assert not self.constraints.forced_out(model, up), f"{model} beside {up}"
        self.grant(process, spec)
        self.processes[model] = process
        process.on_devices = True
        for device in spec.devices:
            beside = [
                (name, other)
                for name, other in self.processes.items()
                if name != model and other.on_devices and device in other.uses
            ]
            if not spec.pinned and (process.alone or any(other.alone for _, other in beside)):
                crowd = [n for n, other in beside if not self.specs[n].pinned]
                assert not crowd, f"{model} (alone: {process.alone}) beside {crowd}"
            taken = sum(other.uses[device] for _, other in beside) + process.uses[device]
            if not process.alone:
                room = self.capacity[device] - self.foreign[device]
                assert taken <= room, f"{model} overcommits {device}: {taken} of {room}"
        self.tally["loads"] += 1

    def grant(self, process: Process, spec: ModelSpec) -> None:
        """Note what a process may take of its devices."""
        process.alone = self.is_alone(spec)
        process.uses = {
            device: 0 if process.alone else (spec.need or spec.estimate or {}).get(device, 0)
            for device in spec.devices
        }

    def is_alone(self, spec: ModelSpec) -> bool:
        """Whether nobody knows what the model needs, or no more than that it is too much."""
        if spec.need is not None:
            return False
        pins = [s for s in self.specs.values() if s.pinned and s is not spec and s.need]
        return spec.estimate is None or any(
            amount + sum((pin.need or {}).get(d, 0) for pin in pins)
            > self.capacity[d] - self.foreign[d]
            for d, amount in spec.estimate.items()
        )

    def sleep(self, model: str, generation: int) -> None:
        """Begin to put a process to sleep, which must be able to, and have room there."""
        process, spec = self.processes[model], self.specs[model]
        assert (process.state, process.generation) == ("ready", generation)
        assert spec.can_sleep
        assert not spec.pinned or model in self.asked_to_sleep or self.released
        if self.served(model):
            assert spec.can_pause, f"{model} is paused, but can't be"
            self.tally["pauses"] += 1
        self.asked_to_sleep.discard(model)
        process.state, process.in_tiers = "sleeping", {spec.tier: spec.tier_bytes}
        self.check_tier(spec.tier)
        late_s = self.rng.random() * self.odds.late_s
        fate = self.fate(model)
        self.after(self.rng.uniform(0.2, 3) + late_s, self.asleep, model, generation, fate)
        if self.odds.edit:
            self.perhaps(0.05, 1.0, self.reconfigure, self.rng.randrange(2**32))

    def page_out(self, model: str, generation: int) -> None:
        """Begin to page a process out, which must be asleep, with nobody who wants it."""
        process, spec = self.processes[model], self.specs[model]
        assert (process.state, process.generation) == ("asleep", generation)
        assert not self.served(model), f"{model} is paged out in the middle of its answers"
        process.state = "paging"
        process.in_tiers[spec.lower_tier] = spec.lower_bytes
        self.check_tier(spec.lower_tier)
        fate = self.rng.choices(["well", "refused", "fails"], [6, 3, 1])[0]
        self.after(self.rng.expovariate(1 / 20), self.paged, model, generation, fate)
        self.perhaps(0.7, 10.0, self.arrive, model, 1.0)

    def check_tier(self, tier: str) -> None:
        """What sleeps there fits."""
        held = sum(process.in_tiers.get(tier, 0) for process in self.processes.values())
        assert held <= self.tiers[tier], f"{tier} is overcommitted"

    def stop(self, model: str, generation: int) -> None:
        """Begin to end a process, which must have nothing under way."""
        process = self.processes[model]
        assert process.generation == generation
        assert process.state != "stopping", f"{model} is stopped twice"
        assert not self.served(model), f"{model} is stopped with answers under way"
        ordered = self.shutting_down or self.released or model in self.unloading | self.removed
        if self.adopting:  # its memory is as it was; nobody else could have it
            self.tally["crowded"] += 1
            ordered, process.in_tiers = True, {}
        if process.refused_wakes < MOST_REFUSED_WAKES:
            assert ordered or not self.specs[model].pinned, f"pinned {model} is stopped"
        assert ordered or process.state in ("ready", "asleep", "paging")
        process.state = "stopping"
        late_s = self.rng.random() * self.odds.late_s
        self.after(self.rng.uniform(0.1, 2) + late_s, self.gone, model, generation)

    # ---- what happens by itself ----------------------------------------------------------------

    def arrive(self, model: str, seconds: float, *, limited: bool = True) -> None:
        """A client asks for `model`, and perhaps runs out of patience."""
        ticket = next(self.numbers)
        self.clients[ticket] = Client(model, seconds=seconds)
        self.tally["tickets"] += 1
        if self.rng.random() < self.odds.leave:
            self.after(self.rng.expovariate(1 / 15), self.leave, ticket)
        is_helper = random.Random(ticket).choice([None, None, True, False])
        is_use = random.Random(f"use {ticket}").random() < 0.9
        self.feed(RequestArrived(ticket, model, limited, is_helper, is_use))

    def leave(self, ticket: int) -> None:
        """A client goes away, wherever it is; twice does no harm."""
        client = self.clients[ticket]
        if client.state != "ended":
            client.state = "ended"
            self.tally["left"] += 1
        self.feed(RequestFinished(ticket))

    def finish(self, ticket: int) -> None:
        """An answer ends, if its model didn't stand still meanwhile."""
        client = self.clients[ticket]
        if client.state != "served":
            return
        if self.processes[client.model].state != "ready":
            self.after(1.0, self.finish, ticket)
            return
        client.state = "ended"
        self.tally["served"] += 1
        self.feed(RequestFinished(ticket))

    def loaded(self, model: str, generation: int, news: str, fate: str) -> None:
        """A start or a wake ends, well or not; unless it was stopped before."""
        process = self.processes.get(model)
        if process is None or process.generation != generation:
            return
        if process.state not in ("starting", "waking"):
            # It became ready in the moment in which it was ordered to stop.
            self.feed(ModelChanged(model, generation, Trigger(news)))
        elif fate == "well":
            process.state, process.in_tiers, process.refused_wakes = "ready", {}, 0
            self.feed(ModelChanged(model, generation, Trigger(news)))
            self.live_on(model, generation, is_new=news == "ready")
        elif fate == "refused":
            self.tally["refused to wake"] += 1
            self.tally["failures"] += 1
            process.state, process.on_devices = "asleep", False
            process.refused_wakes += 1
            self.feed(ModelChanged(model, generation, Trigger.SLEPT))
        else:
            self.died(model, generation, oom=fate == "oom")

    def live_on(self, model: str, generation: int, *, is_new: bool) -> None:
        """A process is up, or asleep: how it can sleep may be found out, and it may crash."""
        if is_new and self.specs[model].ability_follows:
            self.after(self.rng.uniform(0.1, 3), self.change_ability, model)
        if self.specs[model].pinned and self.specs[model].need is None:
            self.after(self.rng.uniform(0.1, 30), self.learn, model)
        if self.rng.random() < self.odds.fail / 2:
            self.after(self.rng.expovariate(1 / 20), self.crash, model, generation)

    def asleep(self, model: str, generation: int, fate: str) -> None:
        """A model is out of its devices, or died on the way."""
        process = self.processes.get(model)
        if process is None or (process.generation, process.state) != (generation, "sleeping"):
            return
        if fate != "well" and self.rng.random() < 0.4:
            self.refuse_to_sleep(model, process)
            return
        if fate != "well":
            self.died(model, generation)
            return
        process.state, process.on_devices = "asleep", False
        self.feed(ModelChanged(model, generation, Trigger.SLEPT))

    def paged(self, model: str, generation: int, fate: str) -> None:
        """A model is out of the first tier, or couldn't be, or died on the way."""
        process = self.processes.get(model)
        if process is None or (process.generation, process.state) != (generation, "paging"):
            return
        if fate == "fails":
            self.died(model, generation)
            return
        self.tally["paged out" if fate == "well" else "refused to page out"] += 1
        process.state = "asleep"
        process.in_tiers.pop("ram" if fate == "well" else "swap")
        news = Trigger.PAGED if fate == "well" else Trigger.SLEPT
        self.feed(ModelChanged(model, generation, news))

    def refuse_to_sleep(self, model: str, process: Process) -> None:
        """A driver couldn't, and left the process as it was."""
        self.tally["refused to sleep"] += 1
        unable: dict[str, Any] = {
            "can_sleep": False,
            "can_pause": False,
            "tier": "ram",
            "lower_tier": "",
        }
        spec = self.specs[model] = replace(self.specs[model], **unable)
        self.feed(AbilityChanged(model, False, False, "ram", spec.tier_bytes))
        process.state, process.in_tiers = "ready", {}
        self.feed(ModelChanged(model, process.generation, Trigger.WOKEN))

    def crash(self, model: str, generation: int) -> None:
        """A process dies by itself while nothing is being done to it."""
        process = self.processes.get(model)
        if process is None or process.generation != generation:
            return
        way = self.rng.random()
        if process.state == "ready" and way < 0.5:
            self.go(model, process)
        elif process.state == "ready" and way < 0.75:
            self.unloading.add(model)
            self.feed(ModelDeaf(model, generation))
        elif process.state in ("ready", "asleep"):
            self.died(model, generation)

    def go(self, model: str, process: Process) -> None:
        """A process is ending by itself, and takes its time."""
        self.tally["failures"] += 1
        process.state = "stopping"
        self.feed(ModelGoing(model, process.generation, UpstreamLost(f"{model} is going")))
        self.after(self.rng.uniform(0.1, 2), self.gone, model, process.generation)

    def died(self, model: str, generation: int, *, oom: bool = False) -> None:
        """A process is gone that nobody ended."""
        self.tally["failures"] += 1
        self.tally["ooms"] += oom
        del self.processes[model]
        self.unloading.discard(model)
        error = StartFailed(f"{model} died")
        self.feed(ModelChanged(model, generation, Trigger.EXITED, error, oom))
        self.perhaps(0.5, 3.0, self.arrive, model, 1.0)  # somebody tries again at once

    def gone(self, model: str, generation: int) -> None:
        """A process is gone that was ordered to stop."""
        del self.processes[model]
        self.unloading.discard(model)
        self.feed(ModelChanged(model, generation, Trigger.EXITED))
        # Late news of a generation that is gone never does anything.
        self.feed(ModelChanged(model, generation, Trigger.SLEPT))

    def adopt(self, seed: int) -> None:
        """An earlier proxy has left some models, whether or not they can be there together."""
        rng, found = random.Random(seed), []
        for model, spec in self.specs.items():
            state = rng.choice(["stopped", "ready", "asleep"])
            if state == "stopped":
                continue
            generation, tier = rng.randint(1, 9), rng.choice(["ram", "swap"])
            process = self.processes[model] = Process(generation, {}, alone=False, state=state)
            self.tally[f"adopted {state}"] += 1
            if state == "ready":
                self.grant(process, spec)
                found.append(Found(model=model, generation=generation))
                continue
            process.on_devices, process.in_tiers = False, {tier: spec.tier_bytes}
            self.specs[model] = replace(spec, can_sleep=True, tier=tier, lower_tier="")
            place: dict[str, Any] = {"tier": tier, "tier_bytes": spec.tier_bytes}
            found.append(Found(model=model, generation=generation, **place))
        self.adopting = True
        self.feed(Adopted(tuple(found)))
        self.adopting = False
        for model, process in self.processes.items():
            self.live_on(model, process.generation, is_new=process.state == "ready")

    def use_elsewhere(self, device: str, amount: int) -> None:
        """Another program takes or frees memory."""
        self.foreign[device] = amount
        self.feed(ForeignChanged(device, amount))

    def unload(self, model: str, timeout_s: float) -> None:
        """An administrator unloads a model."""
        if model in self.processes:
            self.unloading.add(model)
        self.feed(UnloadRequested(model, timeout_s))

    def ask_to_sleep(self, model: str) -> None:
        """An administrator puts a model to sleep."""
        self.asked_to_sleep.add(model)
        self.feed(SleepRequested(model))

    def keep(self, model: str, keep_s: float) -> None:
        """A client says how long a model is to be kept."""
        self.feed(KeepRequested(model, keep_s))

    def learn(self, model: str) -> None:
        """A probe measures what a model takes while it is ready."""
        process, spec = self.processes.get(model), self.specs[model]
        if process is None or process.state != "ready" or (spec.pinned and spec.need is not None):
            return
        pins = [s.need for s in self.specs.values() if s.pinned and s.need]
        need = {
            device: max(
                1,
                min(
                    round(self.rng.uniform(0.8, 1.2) * amount),
                    self.capacity[device] - sum(pin.get(device, 0) for pin in pins),
                ),
            )
            for device, amount in (spec.need or spec.estimate or self.guess(spec)).items()
        }
        self.specs[model] = replace(spec, need=need)
        process.uses, process.alone = dict(need), False
        self.feed(NeedChanged(model, need))

    def forget(self, model: str) -> None:
        """Another file takes the place of the one whose need was learned; who is up stays up."""
        spec = self.specs[model]
        if spec.pinned:
            return
        estimate = dict(spec.need or self.guess(spec)) if self.rng.random() < 0.7 else None
        self.specs[model] = replace(spec, need=None, estimate=estimate)
        self.feed(NeedEstimated(model, estimate))

    def lose_file(self, model: str) -> None:
        """What a model needs on disk is gone, so that it must not be started."""
        self.lack(model, ModelIncomplete(f"the file of {model} isn't there"))

    def find_file(self, model: str) -> None:
        """It is there again."""
        self.lack(model, None)

    def lack(self, model: str, lack: LlmsnapError | None) -> None:
        """Tell of it."""
        self.specs[model] = replace(self.specs[model], lack=lack)
        self.feed(LackChanged(model, lack))

    def guess(self, spec: ModelSpec) -> dict[str, int]:
        """What a model takes that nobody knows anything about."""
        return {device: self.capacity[device] // 2 for device in spec.devices}

    def change_ability(self, model: str) -> None:
        """A sleep driver is found, or lost."""
        sleeps = self.rng.random() < 0.7
        pauses = sleeps and self.rng.random() < 0.5
        lower = self.rng.choice(["", "swap"])
        able: dict[str, Any] = {
            "can_sleep": sleeps,
            "can_pause": pauses,
            "tier": "ram",
            "lower_tier": lower,
        }
        spec = self.specs[model] = replace(self.specs[model], **able)
        places = ("ram", spec.tier_bytes, lower, spec.lower_bytes)
        self.feed(AbilityChanged(model, sleeps, pauses, *places))

    def reconfigure(self, seed: int) -> None:
        """Somebody has edited the configuration, in every place at once."""
        rng = random.Random(seed)
        back, self.removed = self.removed, {n for n in self.specs if rng.random() < 0.15}
        present = {name: spec for name, spec in self.specs.items() if name not in self.removed}
        outdated = frozenset(name for name in present if rng.random() < 0.2)
        for name in present:
            self.specs[name] = self.edited(rng, name)
        for name in self.removed:
            self.specs[name] = replace(self.specs[name], pinned=False)
        self.constraints = random_constraints(rng, self.specs["pin"])
        for name, process in self.processes.items():
            if name in outdated | self.removed | back:
                self.unloading.add(name)
                self.tally["replaced"] += 1
                self.tally["replaced when " + process.state] += 1
        self.tolerate()
        specs = tuple(self.specs[name] for name in present)
        self.feed(
            Reconfigured(
                specs=specs,
                outdated=outdated,
                capacity=self.capacity,
                tiers=self.tiers,
                schedule=self.schedule,
                constraints=self.constraints,
            )
        )
        for name in self.processes:
            self.live_on(name, self.processes[name].generation, is_new=False)

    def tolerate(self) -> None:
        """Who is beside one that isn't pinned any more is counted as not alone from then on."""
        crowd = [
            (name, device)
            for name, process in self.processes.items()
            for device in process.uses
            if process.on_devices and (name in self.removed or not self.specs[name].pinned)
        ]
        for name, process in self.processes.items():
            process.alone = process.alone and not any(
                other != name and device in process.uses for other, device in crowd
            )

    def release(self, for_s: float, timeout_s: float, *, refuse: bool) -> None:
        """Somebody plays a game, and is done after a while, or forgets to say so."""
        self.released = True
        self.tally["released"] += len(self.processes)
        until = self.now + for_s
        self.feed(ReleaseRequested(for_s, refuse, timeout_s))
        self.after(for_s * self.rng.uniform(0.3, 0.9), self.resume, until)

    def resume(self, until: float) -> None:
        """They say that they are done, before the time is up."""
        assert self.now < until
        self.released = False
        self.feed(ResumeRequested())

    def edited(self, rng: random.Random, name: str) -> ModelSpec:
        """A model with other settings, as far as they don't change what it holds."""
        spec = self.specs[name]
        pinned = rng.random() < 0.5 if name == "pin" else spec.pinned
        self.tally["pinned by an edit"] += pinned and not spec.pinned
        return replace(
            spec,
            pinned=pinned,
            is_helper=rng.random() < 0.2,
            is_default=name == "m0" and rng.random() < 0.2,
            concurrency_limit=rng.choice([0, 0, 3]),
            min_awake_s=rng.choice([None, 0.0, 30.0]),
            sleep_after_s=rng.choice([inf, 20.0]),
            ttl_s=rng.choice([inf, 60.0]),
            head_start_s=rng.choice([0.0, 10.0]),
        )

    def shut_down(self, grace_s: float) -> None:
        """The end."""
        self.shutting_down = True
        self.feed(ShutdownRequested(grace_s))

    def fate(self, model: str) -> str:
        """How what is begun now will end."""
        if self.rng.random() >= self.odds.fail:
            return "well"
        return "fails" if self.specs[model].pinned else self.rng.choice(["fails", "oom"])

    def served(self, model: str) -> list[int]:
        """The tickets that `model` holds."""
        return [n for n, c in self.clients.items() if c.model == model and c.state == "served"]

    def check_books(self) -> None:
        """The scheduler's idea of the processes is the machine's."""
        for view in self.scheduler.views():
            process = self.processes.get(view.model)
            if process is None:
                assert view.state in (State.STOPPED, State.FAILED)
            else:
                assert view.state == process.state
                assert view.generation == process.generation


def build(seed: int) -> World:
    """A random machine: six models on one or two of three devices each, and its accidents."""
    rng = random.Random(seed)
    capacity = {device: rng.choice([8, 16, 24]) * GIB for device in ("gpu0", "gpu1", "host")}
    specs = [random_spec(rng, f"m{i}", capacity) for i in range(5)]
    pin = ModelSpec(
        name="pin",
        devices=("gpu0",),
        need={"gpu0": 2 * GIB},
        pinned=rng.random() < 0.5,
        can_sleep=True,
        tier_bytes=2 * GIB,
    )
    odds = Odds(
        fail=rng.choice([0.0, 0.0, 0.05, 0.4]),
        leave=rng.choice([0.0, 0.1, 0.4]),
        late_s=rng.choice([0.0, 3.0]),
        grow=rng.choice([0.0, 1.0]),
        edit=random.Random(f"edits {seed}").choice([0.0, 4.0]),
    )
    world = World(
        rng=rng,
        specs={spec.name: with_class(spec, seed) for spec in [*specs, pin]},
        capacity=capacity,
        tiers={
            "ram": rng.choice([4, 20, 20, 30, 40, 200]) * GIB,
            "swap": rng.choice([20, 60, 200]) * GIB,
        },
        constraints=random_constraints(rng, pin),
        odds=odds,
    )
    if random.Random(f"left {seed}").random() < 0.5:
        world.after(0.0, world.adopt, seed)
    return world


def with_class(spec: ModelSpec, seed: int) -> ModelSpec:
    """Return `spec`, which may be a helper, the default, or have a head start."""
    rng = random.Random(f"{seed} {spec.name}")
    return replace(
        spec,
        head_start_s=rng.choice([0.0, 0.0, 10.0, -10.0]),
        is_helper=rng.random() < 0.2,
        is_default=spec.name == "m0" and rng.random() < 0.2,
    )


def random_spec(rng: random.Random, name: str, capacity: dict[str, int]) -> ModelSpec:
    """A model of any kind."""
    devices = tuple(rng.sample(sorted(capacity), rng.choice([1, 1, 2])))
    size = {device: round(rng.uniform(0.1, 0.9) * capacity[device]) for device in devices}
    knowledge = rng.choices(["need", "estimate", "nothing"], [8, 1, 1])[0]
    sleeps = rng.random() < 0.8
    return ModelSpec(
        name=name,
        devices=devices,
        need=size if knowledge == "need" else None,
        estimate=size if knowledge == "estimate" else None,
        can_sleep=sleeps,
        can_pause=sleeps and rng.random() < 0.5,
        ability_follows=rng.random() < 0.3,
        tier_bytes=sum(size.values()),
        lower_tier=rng.choice(["", "swap", "swap"]),
        lower_bytes=round(1.1 * sum(size.values())),
        concurrency_limit=rng.choice([0, 0, 3]),
        min_awake_s=rng.choice([None, None, 0.0, 30.0]),
        time_slice_s=rng.choice([None, 2.0]),
        sleep_after_s=rng.choice([inf, 20.0]),
        ttl_s=rng.choice([inf, 60.0]),
    )


def random_constraints(rng: random.Random, pin: ModelSpec) -> Constraints:
    """Mostly none; else two groups of two, or a matrix."""
    pinned = [pin.name] if pin.pinned else []
    if rng.random() < 0.7:
        return Free()
    if rng.random() < 0.4:
        sets = {"x": "(m0 | m1) & m2", "y": "m1 & (m3 | pin)", "z": "+x & pin"}
        costs = {"m0": rng.randint(1, 3)}
        return MatrixRules({name: parse(text) for name, text in sets.items()}, costs, pinned)
    groups = {
        name: GroupConfig(swap=rng.random() < 0.7, exclusive=rng.random() < 0.7, members=members)
        for name, members in (("one", ("m0", "m1")), ("two", ("m2", "pin")))
    }
    return GroupRules.from_config(groups, pinned)


def script(world: World, events: int) -> None:
    """Put clients, administrators, probes and other programs on the stage."""
    rng, names = world.rng, sorted(world.specs)
    when = 0.0
    for _ in range(events):
        when += rng.expovariate(1 / 3)
        name = rng.choice(names)
        kind = rng.choices(
            [
                *("client", "burst", "load", "foreign", "unload", "sleep", "edit"),
                *("release", "file", "learn", "ability", "forget"),
            ],
            [
                60,
                8,
                4,
                4,
                2,
                3,
                world.odds.edit,
                world.odds.edit / 4,
                1,
                *(o * world.odds.grow for o in (4, 2, 1)),
            ],
        )[0]
        match kind:
            case "client" | "burst":
                for _ in range(rng.randint(3, 8) if kind == "burst" else 1):
                    world.after(when, world.arrive, name, rng.lognormvariate(0, 1.2))
            case "load":
                world.after(when, lambda name=name: world.arrive(name, 0.0, limited=False))
            case "foreign":
                device = rng.choice(sorted(world.capacity))
                amount = round(rng.uniform(0, 0.5) * world.capacity[device])
                world.after(when, world.use_elsewhere, device, amount)
                world.after(when + rng.expovariate(1 / 60), world.use_elsewhere, device, 0)
            case "unload":
                world.after(when, world.unload, name, rng.choice([0.0, 5.0, 60.0]))
            case "sleep":
                world.after(when, world.ask_to_sleep, name)
                world.after(when * rng.random(), world.keep, name, rng.choice([0.0, 15.0, inf]))
            case "release":
                limits = rng.choice([60.0, 300.0]), rng.choice([0.0, 5.0, inf])
                refuse = rng.random() < 0.3
                world.after(when, partial(world.release, *limits, refuse=refuse))
            case "edit":
                world.after(when, world.reconfigure, rng.randrange(2**32))
            case "file":
                world.after(when, world.lose_file, name)
                world.after(when + rng.expovariate(1 / 30), world.find_file, name)
            case "learn":
                world.after(when, world.learn, name)
            case "forget":
                world.after(when, world.forget, name)
            case "ability":
                world.after(when, world.change_ability, name)
    if rng.random() < 0.5:
        world.after(when * rng.uniform(0.5, 1.1), world.shut_down, rng.choice([0.0, 5.0, 30.0]))
        world.after(when * 1.2, world.shut_down, 1.0)
