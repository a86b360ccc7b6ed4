"""The runtime put together as the program does it, over small children."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import uvloop

from llmsnap.core.constraints import Constraints, Free
from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import AbilityChanged, ModelChanged, ModelGoing, ModelSpec
from llmsnap.core.schedule import Schedule
from llmsnap.core.scheduler import Scheduler
from llmsnap.runtime.health import Prober
from llmsnap.runtime.life import Tools
from llmsnap.runtime.logs import Logs
from llmsnap.runtime.plan import Endpoint, Plan
from llmsnap.runtime.prefetch import Prefetch, ReadAhead
from llmsnap.runtime.runfile import RunFiles
from llmsnap.runtime.runner import Runner
from llmsnap.runtime.supervisor import Supervisor
from llmsnap.runtime.tasks import Background
from llmsnap.telemetry.contexts import Context
from llmsnap.telemetry.recorder import Recorder
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually
from tests.runtime.resting import Chooser, Driver

CHILDREN = Path(__file__).parent.parent / "helpers" / "children"

PROXY_LIKE = (sys.executable, "-m", "tests.helpers.children.proxy_like")
"""The command line of a small parent; its loop, a folder and a command follow."""

GIB = 1024**3


def loop_name() -> str:
    """Which event loop the test runs on."""
    return "uvloop" if isinstance(asyncio.get_running_loop(), uvloop.Loop) else "asyncio"


def children() -> set[psutil.Process]:
    """The processes that this one has started and not reaped."""
    return set(psutil.Process().children())


def serve_argv(port: int, options: str = "") -> tuple[str, ...]:
    """The command line of the small server, ready 30 ms after it is started."""
    return (sys.executable, "-S", str(CHILDREN / "serve.py"), str(port), *options.split())


def plan(model: str = "a", options: str = "", **settings: Any) -> Plan:
    """A plan that runs the small server with `options` on a free port."""
    port = settings.pop("port", None) or free_port()
    values: dict[str, Any] = {
        "argv": serve_argv(port, options),
        "env": dict(os.environ),
        "endpoint": Endpoint(host="127.0.0.1", port=port),
        "start_timeout_s": 120.0,
        "grace_s": 30.0,
    }
    return Plan(model=model, **(values | settings))


class OneAtATime:
    """Every model forces all others out."""

    def forced_out(self, target: str, others: Iterable[str]) -> frozenset[str]:
        """Return all but the target."""
        return frozenset(others) - {target}


class Rig:
    """Builds runners and supervisors, keeps their reports, and closes it all."""

    def __init__(self, folder: Path) -> None:
        self.background = Background()
        self.prober = Prober()
        self.files = RunFiles(folder)
        self.run_folder = folder / "run"
        self.logs = Logs()
        self.news: list[ModelChanged] = []
        self.going: list[ModelGoing] = []
        self.abilities: list[AbilityChanged] = []
        self.supervisor: Supervisor | None = None
        self.runners: dict[str, Runner] = {}
        self.scheduler: Scheduler | None = None
        self.context = Context()
        """What is known of every model's conversations."""
        self.kernel_kills: list[int | None] = []
        """What the kernel says, question by question; then that it doesn't tell."""

    def tools(self) -> Tools:
        """What runners need; they report to the supervisor when there is one."""
        return Tools(
            report=self._report,
            background=self.background,
            prober=self.prober,
            files=self.files,
            write_log=self.logs.write_upstream,
            context=lambda _: self.context,
            oom_kills=lambda: self.kernel_kills.pop(0) if self.kernel_kills else None,
        )

    def runner(self, a_plan: Plan, *, driver: Driver | None = None) -> Runner:
        """Return a runner whose reports go to `news`."""
        runner = self.runners[a_plan.model] = Runner(
            a_plan, self.tools(), chooser=Chooser(driver) if driver else None
        )
        return runner

    def supervise(
        self,
        *plans: Plan,
        specs: Mapping[str, Mapping[str, Any]] | None = None,
        constraints: Constraints | None = None,
        drivers: Mapping[str, Driver] | None = None,
        prefetches: Mapping[str, Prefetch] | None = None,
        recorder: Recorder | None = None,
    ) -> Supervisor:
        """Return a supervisor over `plans`; without more said, all may be up at once.

        `specs` adds to what the scheduler is told of a model.
        """
        told = specs or {}
        self.scheduler = Scheduler(
            [ModelSpec(name=p.model, **told.get(p.model, {})) for p in plans],
            capacity={},
            tiers={"ram": 64 * GIB},
            schedule=replace(Schedule(), fair_after_s=0.2, hold_s=0.1),
            constraints=constraints or Free(),
            clock=time.monotonic,  # as in the program: uvloop's own counts whole milliseconds
        )
        ahead = ReadAhead(prefetches or {}, self.scheduler.view)
        self.supervisor = Supervisor(self.scheduler, self.background, ahead, recorder)
        for p in plans:
            self.runner(p, driver=(drivers or {}).get(p.model))
        self.supervisor.supervise(self.runners)
        return self.supervisor

    async def reported(self, trigger: Trigger, *, timeout_s: float = 60) -> ModelChanged:
        """Return the next report, which must be of `trigger`."""
        await eventually(lambda: bool(self.news), timeout_s=timeout_s, what=f"{trigger}")
        news = self.news.pop(0)
        assert news.trigger is trigger, news
        return news

    async def becomes(self, model: str, state: State, *, timeout_s: float = 60) -> None:
        """Wait until the supervisor shows `model` in `state`."""
        supervisor = self.supervisor
        assert supervisor is not None
        await eventually(
            lambda: supervisor.view(model).state is state,
            timeout_s=timeout_s,
            what=f"{model} {state}",
        )

    async def aclose(self) -> None:
        """End all children; check the scheduler's invariants."""
        if self.supervisor is not None and self.scheduler is not None:
            if not self.supervisor.fatal.done():
                self.scheduler.check_invariants()
            await self.supervisor.shutdown(0)
        await self.background.aclose()
        await self.prober.aclose()
        self.logs.close()

    def _report(self, news: ModelChanged | ModelGoing | AbilityChanged) -> None:
        if isinstance(news, ModelChanged):
            self.news.append(news)
        elif isinstance(news, ModelGoing):
            self.going.append(news)
        else:
            self.abilities.append(news)
        if self.supervisor is not None:
            self.supervisor.post(news)
