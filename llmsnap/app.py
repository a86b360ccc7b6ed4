"""The composition root: the only place that builds the parts and orders start and stop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import resource
import signal
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any, Final

from aiohttp import web

from llmsnap.config.loader import Loaded
from llmsnap.config.reload import Changes
from llmsnap.config.schema import Config
from llmsnap.config.upstreams import listens_on_itself
from llmsnap.config.watching import Source
from llmsnap.errors import ConfigError, Conflict, LlmsnapError
from llmsnap.fleet import Draft, Fleet, fleet_of
from llmsnap.journal import Journal
from llmsnap.keeping import Keeping
from llmsnap.reloading import Reloading
from llmsnap.remembering import Remembering
from llmsnap.runtime.peers import Network
from llmsnap.runtime.runfile import RunFiles
from llmsnap.runtime.supervisor import Supervisor
from llmsnap.runtime.tasks import Background
from llmsnap.telemetry.metrics import Metrics, Sources
from llmsnap.telemetry.recorder import Recorder
from llmsnap.telemetry.tally import Tally
from llmsnap.web.activity import ActivityRoutes
from llmsnap.web.address import Address, open_sockets
from llmsnap.web.connection import listening
from llmsnap.web.events import EventRoutes, Parts
from llmsnap.web.handover import HandoverRoute
from llmsnap.web.hardware import HardwareRoute
from llmsnap.web.metrics import MetricsRoute
from llmsnap.web.performance import PerformanceRoutes
from llmsnap.web.proxy import INFERENCE_PATHS, Proxy
from llmsnap.web.release import ReleaseRoutes
from llmsnap.web.server import PARTS, build_app
from llmsnap.web.serving import Lender
from llmsnap.web.sessions import SessionRoutes
from llmsnap.web.status import StatusRoutes

logger = logging.getLogger(__name__)

GRACE_S: Final = 30.0
"""How long running answers may go on after the first signal."""
CLOCK: Final = time.monotonic
"""Of all waits: uvloop's own is the same, but counts in whole milliseconds."""
EX_SOFTWARE: Final = 70
"""What sysexits.h calls an internal error."""

_FILES: Final = 65536
_M_MMAP_THRESHOLD: Final = -3
_LARGE_BLOCK_BYTES: Final = 256 * 1024
_GARBAGE_AFTER: Final = 10_000
"""Objects made and not freed before Python looks for cycles; a request makes few that last."""


async def serve(
    loaded: Loaded,
    address: Address,
    announce: Callable[[Address], None],
    *,
    state_dir: Path,
    tls: ssl.SSLContext | None = None,
    source: Source | None = None,
) -> int:
    """Run the proxy until a signal; return the exit code. `announce` is told where it listens.

    What was opened last is closed first. Without a `source` nothing is read again. Raises
    ListenFailed and ConfigError.
    """
    config = loaded.config
    set_limits()
    async with AsyncExitStack() as opened:
        sockets, here = await opened.enter_async_context(bound(loaded, address))
        journal = opened.enter_context(Journal.opened(config))
        for warning in loaded.warnings:
            logger.warning("%s", warning)
        signals = opened.enter_context(Signals.caught())
        files, recorder = RunFiles(state_dir), Recorder(reads_tokens=config.activity.tokens)
        keeping, remembering = Keeping(config, state_dir, recorder), Remembering(config, state_dir)
        for opening in (keeping.opened(), remembering.opened(recorder)):
            await opened.enter_async_context(opening)
        fleet = await opened.enter_async_context(
            fleet_of(config, journal.logs, files, recorder, keeping.store, remembering, CLOCK)
        )
        proxy = proxy_of(fleet, recorder)
        signals.may_hand_over = fleet.tools.lasting
        site = Site(loaded, here, journal, fleet, proxy, keeping, recorder, source, signals)
        opened.push_async_callback(site.aclose)
        async with listening(site.app, sockets, tls=tls, log=journal.access) as stop_accepting:
            announce(here)
            code = await until_told(site, signals)
            stop_accepting()
            await shut_down(fleet.supervisor, proxy, signals)
            journal.logs.close()
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


def proxy_of(fleet: Fleet, recorder: Recorder) -> Proxy:
    """Return the hot path over `fleet`."""
    lender = lender_of(fleet.config, fleet.supervisor)
    return Proxy(fleet.config, lender, recorder, conversations=fleet.remembering)


def lender_of(config: Config, supervisor: Supervisor) -> Lender:
    """Return who lends the models that requests may name."""
    return Network(supervisor, config.peers) if config.peers else supervisor


class Site:
    """All that is to be had over HTTP, and how it follows the configuration."""

    def __init__(
        self,
        loaded: Loaded,
        here: Address,
        journal: Journal,
        fleet: Fleet,
        proxy: Proxy,
        keeping: Keeping,
        recorder: Recorder,
        source: Source | None,
        signals: Signals,
    ) -> None:
        config = fleet.config
        self.fleet = fleet
        self.preloads = config.hooks.on_startup.preload
        self.reloading = Reloading(
            loaded,
            source,
            check=partial(refuse_own_port, here=here),
            draft=fleet.draft,
            adopt=self._adopt,
        )
        self._proxy = proxy
        self._background = Background()
        events = EventRoutes(keeping.events, parts_of(config, fleet.supervisor, proxy, journal))
        sessions = SessionRoutes(config, fleet.remembering)
        more = [
            *ActivityRoutes(keeping.history, keeping.captures).routes(),
            *events.routes(),
            *measured(fleet, recorder, keeping, proxy),
            *order_routes(fleet.supervisor, self.reloading),
            *sessions.routes(),
            *HandoverRoute(signals.hand_over).routes(),
        ]
        self.app = application(config, fleet, proxy, journal, more, here)
        self._parts = (journal, *self.app[PARTS], events, sessions)

    def preload(self, models: Sequence[str]) -> None:
        """Begin to load `models`, one after the other."""
        self._background.spawn(preload(self.fleet.supervisor, models), name="preload")

    async def aclose(self) -> None:
        """End what it has begun, and what clients who have left still have running."""
        await self._background.aclose()
        await self._proxy.aclose()

    def _adopt(self, draft: Draft, changes: Changes) -> None:
        """Have another configuration count, for all parts between two requests."""
        config, supervisor = draft.config, self.fleet.supervisor
        if supervisor.closing:
            raise Conflict("llmsnap is shutting down; start it again to go by another file")
        self.fleet.adopt(draft, changes.restarted)
        self._proxy.adopt(config, lender_of(config, supervisor))
        for part in self._parts:
            part.adopt(config)
        before, self.preloads = self.preloads, config.hooks.on_startup.preload
        self.preload([model for model in self.preloads if model not in before])


def order_routes(supervisor: Supervisor, reloading: Reloading) -> list[web.RouteDef]:
    """Return the routes to the proxy as a whole: how it is, and what it is told to do."""
    status = StatusRoutes(reloading, lambda: supervisor.released, CLOCK)
    return [*status.routes(), *ReleaseRoutes(supervisor, CLOCK).routes()]


def application(
    config: Config,
    fleet: Fleet,
    proxy: Proxy,
    journal: Journal,
    more: Sequence[web.RouteDef],
    address: Address,
) -> web.Application:
    """Return all that is to be had over HTTP at `address`."""
    return build_app(
        config,
        fleet.supervisor,
        proxy,
        journal.logs,
        loopback=address.is_loopback,
        clock=CLOCK,
        memory=fleet.survey,
        more=more,
    )


def parts_of(config: Config, supervisor: Supervisor, proxy: Proxy, journal: Journal) -> Parts:
    """Return where events come from."""
    return Parts(
        config,
        supervisor.views,
        supervisor.watch,
        proxy.standins,
        proxy.inflight,
        journal.logs,
        CLOCK,
    )


def measured(
    fleet: Fleet, recorder: Recorder, keeping: Keeping, proxy: Proxy
) -> list[web.RouteDef]:
    """Have what happens counted, and the machine sampled; return the routes that show it."""
    tally = Tally(INFERENCE_PATHS)
    recorder.listen(tally.take)
    fleet.remembering.listeners.append(tally.take_session)
    memory = fleet.survey
    sources = Sources(views=fleet.supervisor.views, held=memory.held, devices=memory.readings)
    metrics = Metrics(tally, sources, CLOCK)
    performance = PerformanceRoutes(keeping.sampled(memory.readings))
    hardware = HardwareRoute(memory.readings)
    return [
        *MetricsRoute(metrics, proxy.monitor).routes(),
        *performance.routes(),
        *hardware.routes(),
    ]


async def until_told(site: Site, signals: Signals) -> int:
    """Load what is to be loaded from the start, then wait for the end; return the exit code."""
    supervisor, reloading, background = site.fleet.supervisor, site.reloading, Background()
    site.preload(site.preloads)
    background.spawn(reloading.watch(), name="configuration watch")
    background.spawn(reloading.obey(signals.hangups), name="SIGHUP")
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


async def shut_down(supervisor: Supervisor, proxy: Proxy, signals: Signals) -> None:
    """Let answers end within the grace; another signal skips it. WebSockets are closed at once."""
    proxy.hang_up()
    background = Background()
    ending = background.spawn(
        supervisor.shutdown(GRACE_S, hand_over=signals.hands_over), name="shutdown"
    )
    again = background.spawn(signals.next(), name="second signal")
    await asyncio.wait({ending, again}, return_when=asyncio.FIRST_COMPLETED)
    if not ending.done():
        logger.warning("told again: what still runs is ended now")
        await supervisor.shutdown(0, hand_over=signals.hands_over)
    await ending
    await background.aclose()


class Signals:
    """SIGINT, SIGTERM and SIGUSR2, one after the other."""

    def __init__(self) -> None:
        self._come: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self.hangups = asyncio.Event()
        """Set by SIGHUP."""
        self.may_hand_over = False
        """Whether models can be left to another proxy, so that a SIGUSR2 counts."""
        self.hands_over = False
        """Whether that is what the last one wants."""

    @classmethod
    @contextmanager
    def caught(cls) -> Iterator[Signals]:
        """Catch them inside the block; a SIGHUP, too, which isn't to be the end."""
        loop = asyncio.get_running_loop()
        signals = cls()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, signals._come.put_nowait, signum)
        loop.add_signal_handler(signal.SIGHUP, signals.hangups.set)
        loop.add_signal_handler(signal.SIGUSR2, signals.try_to_hand_over)
        try:
            yield signals
        finally:
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
                loop.remove_signal_handler(signum)

    async def next(self) -> signal.Signals:
        """Wait for one, and say so in the log."""
        signum = await self._come.get()
        self.hands_over = signum is signal.SIGUSR2
        what = "handing over" if self.hands_over else "shutting down"
        logger.info("%s: %s", signum.name, what)
        return signum

    def hand_over(self) -> None:
        """Have the proxy end as a SIGUSR2 does; raise Conflict where it can leave no models."""
        if not self.may_hand_over:
            raise Conflict(
                "models can't be left to another proxy, because this one was started without "
                "runtime.adopt; set it and restart"
            )
        self._come.put_nowait(signal.SIGUSR2)

    def try_to_hand_over(self) -> None:
        """Do so, or say in the log why not."""
        try:
            self.hand_over()
        except Conflict as error:
            logger.warning("SIGUSR2: %s", error)


def refuse_own_port(loaded: Loaded, here: Address) -> None:
    """Raise ConfigError when a model's server is to listen where the proxy itself does."""
    error = listens_on_itself(loaded.config, here.port, host=here.host)
    if error is not None:
        raise ConfigError(f"{loaded.name}: {error}")


def set_limits() -> None:
    """Set those of this process, which are made for programs with less to do at a time."""
    raise_file_limit()
    gc.freeze()  # what was imported stays
    gc.set_threshold(_GARBAGE_AFTER)
    gc.enable()
    return_large_blocks()


def return_large_blocks() -> None:
    """Have glibc give blocks as large as a body back to the system as soon as they are free.

    By itself it soon keeps blocks of up to 32 MiB, and gaps between them that nothing fits into.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl and macOS have none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def raise_file_limit() -> None:
    """Allow as many open files as we may, up to what is ever needed: two a client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
