"""Builds what runs the models, and has it go by another configuration while they run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from llmsnap.books import Books, Kept
from llmsnap.config.schema import Config
from llmsnap.core.constraints import constraints_for
from llmsnap.core.messages import Reconfigured
from llmsnap.core.scheduler import Scheduler
from llmsnap.core.specs import schedule_for
from llmsnap.drivers import Drivers
from llmsnap.inheritance import Inheritance, inherit, leaves_processes
from llmsnap.memory.footprints import Keeps
from llmsnap.memory.host import Host
from llmsnap.memory.machine import Look, Machine
from llmsnap.remembering import Remembering
from llmsnap.runtime.devices import Survey
from llmsnap.runtime.health import Prober
from llmsnap.runtime.lacks import Looks
from llmsnap.runtime.life import Tools
from llmsnap.runtime.logs import Logs
from llmsnap.runtime.plan import Plan, plan_for
from llmsnap.runtime.prefetch import Prefetch, ReadAhead
from llmsnap.runtime.runfile import RunFiles
from llmsnap.runtime.runner import Runner
from llmsnap.runtime.supervisor import Supervisor
from llmsnap.runtime.tasks import Background
from llmsnap.telemetry.contexts import Contexts
from llmsnap.telemetry.recorder import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """All that takes time to find out before another configuration can count."""

    config: Config
    plans: Mapping[str, Plan]
    books: Books


@dataclass(slots=True)
class Fleet:
    """The supervisor, and those that it works with."""

    supervisor: Supervisor
    machine: Machine
    drivers: Drivers
    ahead: ReadAhead
    looks: Looks
    tools: Tools
    kept: Kept
    store: Keeps
    remembering: Remembering
    config: Config
    """With `--slot-save-path` in the commands of servers whose conversations are kept."""
    books: Books
    runners: dict[str, Runner]
    """Of every model that there was since the start."""

    @property
    def survey(self) -> Survey:
        """What is known of memory."""
        return self.kept.survey

    async def draft(self, config: Config) -> Draft:
        """Find out what it takes to go by `config`; nothing changes yet. Raises ConfigError."""
        config = self.remembering.fitted(config)
        plans = plans_for(config)
        tiers = self.drivers.tiers(config)
        books = await Books.open(
            config, self.machine, plans, self.store, asleep_bytes=tiers["ram"], before=self.books
        )
        return Draft(config=config, plans=plans, books=books)

    def adopt(self, draft: Draft, outdated: Collection[str]) -> None:
        """Go by `draft` from now on; the processes of `outdated` models are replaced."""
        config, books, drivers = draft.config, draft.books, self.drivers
        drivers.adopt(config)
        self.config, self.books = config, books
        self.kept.adopt(books)
        self.remembering.adopt(config)
        self.ahead.adopt(prefetches(config, draft.plans))
        runners = self.runners_for(draft.plans)
        event = Reconfigured(
            specs=tuple(books.specs),
            outdated=frozenset(outdated),
            capacity=books.capacity,
            tiers=drivers.tiers(config),
            schedule=schedule_for(config),
            constraints=constraints_for(config, counted=bool(books.capacity)),
        )
        self.looks.take(books.lacks)
        self.supervisor.adopt(runners, event)

    def runners_for(self, plans: Mapping[str, Plan]) -> dict[str, Runner]:
        """Return what runs each model: its own runner, with its new plan, or a new one."""
        for model, plan in plans.items():
            chooser = self.drivers.chooser(model)
            if runner := self.runners.get(model):
                runner.adopt(plan, chooser)
            else:
                self.runners[model] = Runner(plan, self.tools, chooser=chooser)
        return {model: self.runners[model] for model in plans}


@asynccontextmanager
async def fleet_of(
    config: Config,
    logs: Logs,
    files: RunFiles,
    recorder: Recorder,
    store: Keeps,
    remembering: Remembering,
    clock: Callable[[], float],
) -> AsyncIterator[Fleet]:
    """Build scheduler, runners and supervisor; inside the block models can be asked for."""
    machine, config = Machine.here(clock), remembering.fitted(config)
    drivers, plans = Drivers(config, machine, clock), plans_for(config)
    left = await inherit(config, files, plans, drivers.chooser)
    tiers, background = left.widen(drivers.tiers(config)), Background()
    books = await books_for(config, machine, plans, store, tiers, left)
    scheduler = scheduler_for(config, books, tiers, clock)
    ahead = ReadAhead(prefetches(config, plans), scheduler.view)
    async with Prober() as prober:
        runners: dict[str, Runner] = {}
        looks = Looks(runners, background, books.lacks)
        supervisor = Supervisor(scheduler, background, ahead, recorder, looks)
        supervisor.watch(looks.follow)
        remembering.follow(supervisor)
        kept = books.keep(supervisor, background, prober, log=logs.history, clock=clock)
        shared = (kept, background, prober, files, logs, recorder, remembering)
        tools = tools_for(config, *shared)
        looks.report_to(supervisor.post, kept.needs.look_again)
        parts = (supervisor, machine, drivers, ahead, looks, tools, kept, store, remembering)
        fleet = Fleet(*parts, config, books, runners)
        supervisor.supervise(left.handed_to(fleet.runners_for(plans)), left.found)
        try:
            yield fleet
        finally:
            ahead.close()
            await drivers.aclose()
            await machine.aclose()


def tools_for(
    config: Config,
    kept: Kept,
    background: Background,
    prober: Prober,
    files: RunFiles,
    logs: Logs,
    recorder: Recorder,
    remembering: Remembering,
) -> Tools:
    """Return what all runners share."""
    return Tools(
        report=kept.settling.report,
        background=background,
        prober=prober,
        files=files,
        write_log=logs.write_upstream,
        context=Contexts(recorder).of,
        lasting=leaves_processes(config),
        conversations=remembering,
    )


async def books_for(
    config: Config,
    machine: Machine,
    plans: Mapping[str, Plan],
    store: Keeps,
    tiers: Mapping[str, int],
    left: Inheritance,
) -> Books:
    """Return the memory books, which count from now on."""
    books = await Books.open(config, machine, plans, store, asleep_bytes=tiers["ram"])
    # Where models are up already, what is seen now isn't all other programs'.
    return replace(books, first=Look()) if left.found else books


def scheduler_for(
    config: Config, books: Books, tiers: Mapping[str, int], clock: Callable[[], float]
) -> Scheduler:
    """Return who decides."""
    return Scheduler(
        books.specs,
        capacity=books.capacity,
        tiers=tiers,
        schedule=schedule_for(config),
        constraints=constraints_for(config, counted=bool(books.capacity)),
        clock=clock,
    )


def plans_for(config: Config) -> dict[str, Plan]:
    """Return how each model's server is run. Raises ConfigError."""
    return {model: plan_for(model, config, os.environ) for model in config.models}


def prefetches(config: Config, plans: Mapping[str, Plan]) -> dict[str, Prefetch]:
    """Return what reads the files of each model, as far as RAM is free."""
    if not config.memory.prefetch:
        return {}
    host = Host()
    return {
        model: Prefetch(model, plan.argv, plan.env, lambda: host.ram().free_bytes)
        for model, plan in plans.items()
    }
