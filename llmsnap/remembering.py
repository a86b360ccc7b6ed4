"""Builds what keeps conversations beyond the end of their processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from msgspec import structs

from llmsnap.config.engine import keeps_sessions, saves_into, sessions_folder, with_save_paths
from llmsnap.config.schema import Config
from llmsnap.config.sections import SessionsConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView
from llmsnap.errors import Conflict, LlmsnapError, ModelNotFound
from llmsnap.runtime.supervisor import Supervisor
from llmsnap.runtime.tasks import Background, race
from llmsnap.runtime.upstream import Upstream
from llmsnap.sessions import catalogue
from llmsnap.sessions.calendar import Calendar
from llmsnap.sessions.catalogue import Catalogue, Saved
from llmsnap.sessions.desk import Desk
from llmsnap.sessions.keeper import BEFORE_STOP_S, Habits, Keeper
from llmsnap.sessions.outcome import Outcome, Tell
from llmsnap.sessions.slots import Slots
from llmsnap.sessions.subject import Shared, Standing, Subject
from llmsnap.sessions.trial import Attempt, Found
from llmsnap.sessions.vault import Limits, Vault
from llmsnap.store.store import Store
from llmsnap.telemetry.recorder import Batch, Recorder

logger = logging.getLogger(__name__)

_INDEX: Final = "index.db"
_WAKE_S: Final = 30.0
"""How long a stop waits for what sleeps to wake, where that is wanted."""
_PATIENCE_S: Final = 5.0
"""How long the start waits for the index: a conversation that isn't known yet is read again."""


class Remembering:
    """The conversations of all models that keep theirs, and where they are saved.

    Nothing is opened, and no command changed, unless there is such a model at the start.
    """

    def __init__(self, config: Config, state_dir: Path) -> None:
        self.listeners: list[Tell] = []
        """Who is told what became of each save and restore."""
        self._config = config
        self._settings = config.sessions
        self._folder = sessions_folder(config, state_dir)
        self._store = Store(self._folder / _INDEX, (catalogue.SCHEMA,), linger_s=0.0)
        self._background = Background()
        self._keeper: Keeper | None = None
        self._supervisor: Supervisor | None = None
        self.vault = Vault(
            self._folder,
            Catalogue(self._store),
            _limits(self._settings),
            Calendar(_now),
        )

    @asynccontextmanager
    async def opened(self, recorder: Recorder) -> AsyncIterator[None]:
        """Have the folder and its index open within the block; `recorder` tells of requests."""
        if not (self._is_wanted() and await self.vault.make_fit()):
            yield
            return
        self._background.spawn(self._store.run(), name="sessions")
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self.vault.load()
        keeper = self._keeper = self._build(recorder)

        def take(batch: Batch) -> None:
            keeper.took(batch.requests)

        recorder.listen(take)
        self._background.spawn(keeper.run(), name="sessions are tidied up")
        try:
            yield
        finally:
            await keeper.aclose()
            self.vault.note_time()
            await self._store.aclose()
            await self._background.aclose()

    def fitted(self, config: Config) -> Config:
        """Return `config` with commands that make servers save their slots here."""
        if self._keeper is None:
            return config
        first = self._settings
        settled = structs.replace(config.sessions, mode=first.mode, dir=first.dir)
        return with_save_paths(structs.replace(config, sessions=settled), self._folder)

    def adopt(self, config: Config) -> None:
        """Go by the settings of a `fitted` configuration from now on."""
        if self._keeper is not None:
            settings = self._settings = config.sessions
            self.vault.adopt(_limits(settings))
            self._keeper.adopt(_habits(settings), settings.min_tokens)

    def follow(self, supervisor: Supervisor) -> None:
        """Look there for models that are up, and have processes restarted there."""
        self._supervisor = supervisor

    # ---- for runners and the hot path ----------------------------------------------------------

    def desk(self, model: str) -> Desk | None:
        """Return what keeps the conversations of `model`; None: they aren't kept."""
        return self._keeper.desk(model) if self._keeper is not None else None

    def ready(
        self, process: Upstream, argv: Sequence[str], env: Mapping[str, str], *, adopted: bool
    ) -> None:
        """Take in that `process` is up, and how it was started; `adopted`: by an earlier proxy."""
        if self._keeper is not None and saves_into(argv, self._folder):
            least = self._settings.min_tokens
            subject = Subject(argv=argv, env=env, min_tokens=least, is_adopted=adopted)
            self._keeper.ready(process, subject)

    @property
    def wake_s(self) -> float:
        """How long something may take to wake, to be saved before it ends; 0: nothing is woken."""
        return _WAKE_S if self._settings.wake_to_save else 0.0

    @property
    def before_stop_s(self) -> float:
        """How long something may take to be saved before it ends."""
        return BEFORE_STOP_S + self.wake_s

    async def before_sleep(self, process: Upstream, *, loses_cache: bool) -> None:
        """Save what a process holds that is about to sleep."""
        if self._keeper is not None:
            await self._keeper.before_sleep(process, loses_cache=loses_cache)

    def lost(self, process: Upstream) -> None:
        """Take in that a process has slept and its cache is gone."""
        if self._keeper is not None:
            self._keeper.lost(process)

    def is_worth_waking(self, process: Upstream) -> bool:
        """Whether a process that sleeps and is to be ended is to be woken and saved first."""
        return self._keeper is not None and self._keeper.is_worth_waking(process)

    async def before_stop(self, process: Upstream) -> None:
        """Save what a process holds that is about to be ended; takes no longer than it may."""
        if self._keeper is not None:
            await self._keeper.before_stop(process)

    # ---- for administrators --------------------------------------------------------------------

    @property
    def fault(self) -> str:
        """Why nothing is saved; empty: nothing is wrong, or nobody wants it."""
        return self.vault.fault

    def saved(self) -> list[Saved]:
        """Return all conversations that are saved, the least recently used first."""
        on_the_wall = self.vault.calendar.on_the_wall
        return [
            replace(one, made=on_the_wall(one.made), used=on_the_wall(one.used))
            for one in self.vault.catalogue.all()
        ]

    def refusals(self) -> dict[str, str]:
        """Return why nothing is saved of some models, by their names."""
        return self._keeper.refusals() if self._keeper is not None else {}

    async def forget(self, names: Collection[str]) -> None:
        """Delete saved conversations."""
        await self.vault.delete(names)

    async def test(self, model: str) -> Found:
        """Load `model` and find out what restores are worth. Raises Conflict and what loads raise.

        It gives way to whoever wants the model, or memory.
        """
        supervisor = self._supervisor
        if supervisor is None:
            raise ModelNotFound(f"no model {model!r}")
        async with supervisor.lease(model, limited=False) as lease:
            if (desk := self.desk(model)) is None:
                raise Conflict(f"the conversations of model {model!r} aren't saved")
            if supervisor.view(model).in_flight > 1 or desk.attempt is not None:
                raise Conflict(f"model {model!r} is busy; it can be tested when it is idle")
            attempt = Attempt()
            return await race(
                desk.test(lease.upstream, attempt), self._disturbed(supervisor, model, attempt)
            )

    # ---- inside --------------------------------------------------------------------------------

    def _is_wanted(self) -> bool:
        """Whether any model is to keep its conversations; says why not where that is a surprise."""
        models, sessions = self._config.models.values(), self._settings
        wanted = any(keeps_sessions(model, sessions) for model in models)
        if wanted and not self._config.activity.tokens:
            logger.warning("conversations aren't saved, as activity.tokens is off")
        return wanted and self._config.activity.tokens

    def _build(self, recorder: Recorder) -> Keeper:
        shared = Shared(
            slots=Slots(),
            vault=self.vault,
            tell=self._tell,
            now=self.vault.calendar,
            standing=self._standing,
            restart=self._restart,
            flush=recorder.flush,
        )
        return Keeper(
            shared,
            _habits(self._settings),
            spawn=self._background.spawn,
            is_up=self._is_up,
            is_awaited=self._is_awaited,
            test=self._test_idle,
        )

    async def _test_idle(self, model: str) -> None:
        """Test a model that is up, unless somebody wants something."""
        views = self._supervisor.views() if self._supervisor else ()
        is_idle = any(
            view.model == model and view.state is State.READY and not view.in_flight
            for view in views
        )
        if not is_idle or _is_awaited(views, model):
            return
        try:
            await self.test(model)
        except LlmsnapError as error:
            logger.debug("model %s: isn't tested: %s", model, error)

    async def _disturbed(self, supervisor: Supervisor, model: str, attempt: Attempt) -> NoReturn:
        """Wait until somebody wants something. Raises Conflict."""
        while not (_is_awaited(supervisor.views(), model) or attempt.is_unwanted.is_set()):
            await race(supervisor.next_event(), _set(attempt.is_unwanted))
        raise Conflict(f"somebody wants model {model!r}, or memory; test it when all is quiet")

    def _is_up(self, model: str, generation: int) -> bool:
        """Whether that process is up and awake; a model that is gone isn't."""
        return self._standing(model, generation) == "up"

    def _standing(self, model: str, generation: int) -> Standing:
        views = self._supervisor.views() if self._supervisor else ()
        view = next((v for v in views if (v.model, v.generation) == (model, generation)), None)
        if view is None or view.unloading or view.state is State.STOPPING:
            return "leaving"
        if view.state is State.STOPPED and view.error is None:
            return "leaving"
        return "up" if view.state is State.READY else "away"

    def _is_awaited(self) -> bool:
        return any(view.waiting for view in self._supervisor.views()) if self._supervisor else False

    def _restart(self, model: str, generation: int, error: LlmsnapError) -> None:
        assert self._supervisor is not None
        self._supervisor.distrust(model, generation, error)

    def _tell(self, outcome: Outcome) -> None:
        for listener in self.listeners:
            listener(outcome)


def _limits(settings: SessionsConfig) -> Limits:
    return Limits(settings.budget_bytes, settings.max_age_s)


def _habits(settings: SessionsConfig) -> Habits:
    return Habits(snapshots=settings.snapshot, wakes_to_save=settings.wake_to_save)


def _is_awaited(views: Sequence[ModelView], model: str) -> bool:
    """Whether somebody waits for any model, or `model` is to go."""
    return any(view.waiting or (view.model == model and view.unloading) for view in views)


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _now() -> float:
    return datetime.now(UTC).timestamp()
