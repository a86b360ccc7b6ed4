"""The composition root: the only place that builds the parts and orders start and stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any, Final

from aiohttp import web

from llmsnap.books import Books
from llmsnap.config.loader import Loaded
from llmsnap.config.resolved import all_secrets
from llmsnap.config.schema import Config
from llmsnap.config.secrets import blank
from llmsnap.config.upstreams import listens_on_itself
from llmsnap.core.constraints import constraints_for
from llmsnap.core.scheduler import Scheduler
from llmsnap.core.specs import schedule_for
from llmsnap.drivers import Drivers
from llmsnap.errors import ConfigError, LlmsnapError
from llmsnap.keeping import Keeping
from llmsnap.memory.host import Host
from llmsnap.memory.machine import Machine
from llmsnap.runtime.devices import Survey
from llmsnap.runtime.health import Prober
from llmsnap.runtime.life import Tools
from llmsnap.runtime.logs import Logs, ProxyLog, level_named, proxy_lines
from llmsnap.runtime.peers import Network
from llmsnap.runtime.plan import Plan, plan_for
from llmsnap.runtime.prefetch import Prefetch, ReadAhead
from llmsnap.runtime.runfile import RunFiles
from llmsnap.runtime.runner import Runner
from llmsnap.runtime.stdout import Stdout
from llmsnap.runtime.supervisor import Supervisor
from llmsnap.runtime.tasks import Background
from llmsnap.store.store import Store
from llmsnap.telemetry.contexts import Contexts
from llmsnap.telemetry.metrics import Metrics, Sources
from llmsnap.telemetry.recorder import Recorder
from llmsnap.telemetry.tally import Tally
from llmsnap.web.accesslog import AccessLog
from llmsnap.web.activity import ActivityRoutes
from llmsnap.web.address import Address, open_sockets
from llmsnap.web.connection import listening
from llmsnap.web.events import EventRoutes, Parts
from llmsnap.web.metrics import MetricsRoute
from llmsnap.web.performance import PerformanceRoutes
from llmsnap.web.proxy import INFERENCE_PATHS, Proxy
from llmsnap.web.server import build_app
from llmsnap.web.serving import Lender

logger = logging.getLogger(__name__)

GRACE_S: Final = 30.0
"""How long running answers may go on after the first signal."""
CLOCK: Final = time.monotonic
"""Of all waits: uvloop's own is the same, but counts in whole milliseconds."""
EX_SOFTWARE: Final = 70
"""What sysexits.h calls an internal error."""

_FILES: Final = 65536
_GARBAGE_AFTER: Final = 10_000
"""Objects made and not freed before Python looks for cycles; a request makes few that last."""


async def serve(
    loaded: Loaded,
    address: Address,
    announce: Callable[[Address], None],
    *,
    state_dir: Path,
    tls: ssl.SSLContext | None = None,
) -> int:
    """Run the proxy until a signal; return the exit code. `announce` is told where it listens.

    What was opened last is closed first. Raises ListenFailed and ConfigError.
    """
    config = loaded.config
    raise_file_limit()
    gc.set_threshold(_GARBAGE_AFTER)
    async with AsyncExitStack() as opened:
        sockets, here = await opened.enter_async_context(bound(loaded, address))
        logs, log = opened.enter_context(logging_of(config))
        for warning in loaded.warnings:
            logger.warning("%s", warning)
        signals = opened.enter_context(Signals.caught())
        files, recorder = RunFiles(state_dir), Recorder(reads_tokens=config.activity.tokens)
        await files.end_leftovers()
        keeping = Keeping(config, state_dir, recorder)
        await opened.enter_async_context(keeping.opened())
        supervisor, memory = await opened.enter_async_context(
            supervised(config, logs, files, recorder, keeping.store)
        )
        proxy = Proxy(config, lender_of(config, supervisor), recorder)
        opened.push_async_callback(proxy.aclose)
        more = shown(config, keeping, supervisor, proxy, logs)
        more += measured(supervisor, memory, recorder, keeping)
        front = application(config, supervisor, memory, proxy, logs, more, here)
        async with listening(front, sockets, tls=tls, log=log) as stop_accepting:
            announce(here)
            code = await until_told(supervisor, config.hooks.on_startup.preload, signals)
            stop_accepting()
            await shut_down(supervisor, signals)
            logs.close()
    return code


@asynccontextmanager
async def bound(loaded: Loaded, address: Address) -> AsyncIterator[tuple[list[socket], Address]]:
    """Hold the sockets of `address` open; yields them, and the address with its real port."""
    sockets = await open_sockets(address)
    try:
        here = replace(address, port=sockets[0].getsockname()[1])
        refuse_own_port(loaded, here)
        yield sockets, here
    finally:
        for sock in sockets:
            sock.close()


def lender_of(config: Config, supervisor: Supervisor) -> Lender:
    """Return who lends the models that requests may name."""
    return Network(supervisor, config.peers) if config.peers else supervisor


@contextmanager
def logging_of(config: Config) -> Iterator[tuple[Logs, AccessLog | None]]:
    """Send the log where the configuration wants it, with all known secrets blanked.

    Yields what keeps the logs, and what writes a line a request if those are wanted.
    """
    stdout = Stdout()
    logs = Logs(to_stdout=config.log_to_stdout, stdout=stdout.write)
    hide = partial(blank, secrets=all_secrets(config))
    handler = ProxyLog(logs, layout=config.log_time_format, blank=hide)
    root, ours = logging.getLogger(), logging.getLogger("llmsnap")
    level_before = ours.level
    root.addHandler(handler)
    ours.setLevel(level_named(config.log_level))

    def write_access(lines: list[str]) -> None:
        logs.write_proxy(proxy_lines(hide("\n".join(lines)), "INFO", config.log_time_format))

    access = AccessLog(write_access, polls=ours.isEnabledFor(logging.DEBUG))
    try:
        yield logs, access if ours.isEnabledFor(logging.INFO) else None
    finally:
        ours.setLevel(level_before)
        root.removeHandler(handler)
        stdout.close()


@asynccontextmanager
async def supervised(
    config: Config, logs: Logs, files: RunFiles, recorder: Recorder, store: Store
) -> AsyncIterator[tuple[Supervisor, Survey]]:
    """Build scheduler, runners and supervisor; inside the block models can be asked for."""
    machine = Machine.here(CLOCK)
    drivers = Drivers(config, machine, CLOCK)
    tiers = drivers.tiers()
    plans = {model: plan_for(model, config, os.environ) for model in config.models}
    books = await Books.open(config, machine, plans, store, asleep_bytes=tiers["ram"])
    scheduler = Scheduler(
        books.specs,
        capacity=books.capacity,
        tiers=tiers,
        schedule=schedule_for(config),
        constraints=constraints_for(config, counted=bool(books.capacity)),
        clock=CLOCK,
    )
    background = Background()
    ahead = ReadAhead(prefetches(plans) if config.memory.prefetch else {}, scheduler.view)
    async with Prober() as prober:
        supervisor = Supervisor(scheduler, background, ahead, recorder)
        kept = books.keep(supervisor, background, prober, log=logs.history, clock=CLOCK)
        tools = Tools(
            report=kept.report,
            background=background,
            prober=prober,
            files=files,
            write_log=logs.write_upstream,
            context=Contexts(recorder).of,
        )
        supervisor.supervise(runners(plans, tools, drivers))
        try:
            yield supervisor, kept.survey
        finally:
            ahead.close()
            await drivers.aclose()
            await machine.aclose()


def runners(plans: Mapping[str, Plan], tools: Tools, drivers: Drivers) -> dict[str, Runner]:
    """Return what runs the processes of each model."""
    return {
        model: Runner(plan, tools, chooser=drivers.chooser(model)) for model, plan in plans.items()
    }


def application(
    config: Config,
    supervisor: Supervisor,
    memory: Survey,
    proxy: Proxy,
    logs: Logs,
    more: Sequence[web.RouteDef],
    address: Address,
) -> web.Application:
    """Return all that is to be had over HTTP at `address`."""
    return build_app(
        config,
        supervisor,
        proxy,
        logs,
        loopback=address.is_loopback,
        clock=CLOCK,
        memory=memory,
        more=more,
    )


def shown(
    config: Config, keeping: Keeping, supervisor: Supervisor, proxy: Proxy, logs: Logs
) -> list[web.RouteDef]:
    """Return the routes that show what was, and what happens."""
    parts = Parts(
        config,
        supervisor.views,
        supervisor.watch,
        proxy.standins,
        lambda: proxy.inflight.entries(CLOCK()),
        logs,
    )
    return [
        *ActivityRoutes(keeping.history, keeping.captures).routes(),
        *EventRoutes(keeping.events, parts).routes(),
    ]


def measured(
    supervisor: Supervisor, memory: Survey, recorder: Recorder, keeping: Keeping
) -> list[web.RouteDef]:
    """Have what happens counted, and the machine sampled; return the routes that show it."""
    tally = Tally(INFERENCE_PATHS)
    recorder.listen(tally.take)
    sources = Sources(views=supervisor.views, held=memory.held, devices=memory.readings)
    metrics = Metrics(tally, sources, CLOCK)
    performance = PerformanceRoutes(keeping.sampled(memory.readings))
    return [*MetricsRoute(metrics).routes(), *performance.routes()]


def prefetches(plans: Mapping[str, Plan]) -> dict[str, Prefetch]:
    """Return what reads the files of each model, as far as RAM is free."""
    host = Host()
    return {
        model: Prefetch(model, plan.argv, lambda: host.ram().free_bytes)
        for model, plan in plans.items()
    }


async def until_told(supervisor: Supervisor, preloaded: Sequence[str], signals: Signals) -> int:
    """Load what is to be loaded from the start, then wait for the end; return the exit code."""
    background = Background()
    background.spawn(preload(supervisor, preloaded), name="preload")
    told = background.spawn(signals.next(), name="signals")
    ends: list[asyncio.Future[Any]] = [told, supervisor.fatal]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return EX_SOFTWARE if supervisor.fatal.done() else 0
    finally:
        await background.aclose()


async def preload(supervisor: Supervisor, models: Sequence[str]) -> None:
    """Load `models` one after the other; a failure is logged and the next one tried."""
    for model in models:
        try:
            await supervisor.load(model)
        except LlmsnapError as error:
            logger.error("preload of model %s failed: %s", model, error)


async def shut_down(supervisor: Supervisor, signals: Signals) -> None:
    """Let answers end within the grace; another signal skips it."""
    background = Background()
    ending = background.spawn(supervisor.shutdown(GRACE_S), name="shutdown")
    again = background.spawn(signals.next(), name="second signal")
    await asyncio.wait({ending, again}, return_when=asyncio.FIRST_COMPLETED)
    if not ending.done():
        logger.warning("told again: what still runs is ended now")
        await supervisor.shutdown(0)
    await ending
    await background.aclose()


class Signals:
    """SIGINT and SIGTERM, one after the other."""

    def __init__(self) -> None:
        self._come: asyncio.Queue[signal.Signals] = asyncio.Queue()

    @classmethod
    @contextmanager
    def caught(cls) -> Iterator[Signals]:
        """Catch them inside the block; a SIGHUP, too, which isn't to be the end."""
        loop = asyncio.get_running_loop()
        signals = cls()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, signals._come.put_nowait, signum)
        loop.add_signal_handler(
            signal.SIGHUP, logger.warning, "reloading isn't supported yet; restart to apply"
        )
        try:
            yield signals
        finally:
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(signum)

    async def next(self) -> signal.Signals:
        """Wait for one, and say so in the log."""
        signum = await self._come.get()
        logger.info("%s: shutting down", signum.name)
        return signum


def refuse_own_port(loaded: Loaded, here: Address) -> None:
    """Raise ConfigError when a model's server is to listen where the proxy itself does."""
    error = listens_on_itself(loaded.config, here.port, host=here.host)
    if error is not None:
        raise ConfigError(f"{loaded.name}: {error}")


def raise_file_limit() -> None:
    """Allow as many open files as we may, up to what is ever needed: two a client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
