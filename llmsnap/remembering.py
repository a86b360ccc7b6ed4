"""Builds what keeps conversations beyond the end of their processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import structs

from llmsnap.config.engine import keeps_sessions, saves_into, sessions_folder, with_save_paths
from llmsnap.config.schema import Config
from llmsnap.core.lifecycle import State
from llmsnap.errors import LlmsnapError
from llmsnap.runtime.supervisor import Supervisor
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.upstream import Upstream
from llmsnap.sessions import catalogue
from llmsnap.sessions.catalogue import Catalogue, Saved
from llmsnap.sessions.desk import Desk, Shared, Subject
from llmsnap.sessions.keeper import BEFORE_STOP_S, Habits, Keeper
from llmsnap.sessions.outcome import Outcome, Tell
from llmsnap.sessions.slots import Slots
from llmsnap.sessions.vault import Limits, Vault
from llmsnap.store.store import Store
from llmsnap.telemetry.recorder import Batch, Recorder

logger = logging.getLogger(__name__)

_INDEX: Final = "index.db"
_PATIENCE_S: Final = 5.0
"""How long the start waits for the index: a conversation that isn't known yet is read again."""


class Remembering:
    """The conversations of all models that keep theirs, and where they are saved.

    Nothing is opened, and no command changed, unless there is such a model at the start.
    """

    before_stop_s = BEFORE_STOP_S

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
            Limits(self._settings.budget_bytes, self._settings.max_age_s),
            _now,
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
            await self._store.aclose()
            await self._background.aclose()

    def fitted(self, config: Config) -> Config:
        """Return `config` with commands that make servers save their slots here."""
        if self._keeper is None:
            return config
        settled = structs.replace(config, sessions=self._settings)
        return with_save_paths(settled, self._folder)

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
        return self.vault.catalogue.all()

    def refusals(self) -> dict[str, str]:
        """Return why nothing is saved of some models, by their names."""
        return self._keeper.refusals() if self._keeper is not None else {}

    async def forget(self, names: Collection[str]) -> None:
        """Delete saved conversations."""
        await self.vault.delete(names)

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
            now=_now,
            restart=self._restart,
            flush=recorder.flush,
        )
        habits = Habits(snapshots=self._settings.snapshot == "idle")
        return Keeper(shared, habits, spawn=self._background.spawn, is_up=self._is_up)

    def _is_up(self, model: str, generation: int) -> bool:
        """Whether that process is up and awake; a model that is gone isn't."""
        views = self._supervisor.views() if self._supervisor else ()
        return any(
            view.model == model and view.generation == generation and view.state is State.READY
            for view in views
        )

    def _restart(self, model: str, generation: int, error: LlmsnapError) -> None:
        assert self._supervisor is not None
        self._supervisor.distrust(model, generation, error)

    def _tell(self, outcome: Outcome) -> None:
        for listener in self.listeners:
            listener(outcome)


def _now() -> float:
    return datetime.now(UTC).timestamp()
