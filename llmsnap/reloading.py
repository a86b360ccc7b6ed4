"""Has the proxy go by its configuration as it is now, while it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from llmsnap.config.loader import Loaded, load
from llmsnap.config.reload import Changes, changes
from llmsnap.config.resolved import all_secrets
from llmsnap.config.schema import Config
from llmsnap.config.secrets import blank
from llmsnap.config.watching import Source, marks_of
from llmsnap.errors import ConfigError, Conflict
from llmsnap.fleet import Draft

logger = logging.getLogger(__name__)

POLL_S: Final = 1.0
"""Between two looks at the files. What two looks in a row find the same is read."""

Drafts = Callable[[Config], Awaitable[Draft]]
Adopts = Callable[[Draft, Changes], None]


class Reloading:
    """Reads the configuration again, and hands on what has changed.

    A file with a mistake changes nothing: what ran before goes on, and the mistake is told.
    """

    def __init__(
        self,
        loaded: Loaded,
        source: Source | None,
        *,
        check: Callable[[Loaded], None],
        draft: Drafts,
        adopt: Adopts,
        poll_s: float = POLL_S,
    ) -> None:
        """`check` and `draft` raise ConfigError; `adopt` makes a draft count, at once."""
        self.loaded = loaded
        self._source = source
        self._check = check
        self._draft = draft
        self._adopt = adopt
        self._poll_s = poll_s
        self._first = loaded.config
        self._turn = asyncio.Lock()
        self._loaded_at = datetime.now(UTC)
        self._count = 0
        self._last = Changes()
        self._error: tuple[datetime, str] | None = None

    async def reload(self, why: str) -> Changes:
        """Go by the files as they are now, because of `why`; return what has changed.

        Raises ConfigError and Conflict; then all is as before.
        """
        if self._source is None:
            raise Conflict("this proxy wasn't started with a configuration file; start it with one")
        async with self._turn:
            try:
                new = await asyncio.to_thread(self._read, self._source)
                self._check(new)
                found = changes(self.loaded.config, new.config)
                if found:
                    self._adopt(await self._draft(new.config), found)
            except ConfigError as error:
                self._error = datetime.now(UTC), str(error)
                logger.error("%s: the configuration isn't taken: %s", why, error)
                raise
            self._taken(new, found, why)
            return found

    def _read(self, source: Source) -> Loaded:
        return load(*source.files(), running=self.loaded)

    def _taken(self, new: Loaded, found: Changes, why: str) -> None:
        for warning in new.warnings:
            if warning not in self.loaded.warnings:
                logger.warning("%s", warning)
        self.loaded, self._last, self._error = new, found, None
        self._loaded_at = datetime.now(UTC)
        self._count += 1
        logger.info("%s: the configuration was read again: %s", why, found)

    async def watch(self) -> None:
        """Reload whenever the files have changed, until cancelled; files that vanish may return."""
        source = self._source
        if source is None or not source.watched:
            return
        taken = before = source.first
        while True:
            await asyncio.sleep(self._poll_s)
            now = await asyncio.to_thread(marks_of, source.files)
            if now is not None and now != taken and now == before:
                taken = now
                await self._try("the file has changed")
            before = now

    async def obey(self, hangups: asyncio.Event) -> None:
        """Reload on each SIGHUP, until cancelled."""
        while True:
            await hangups.wait()
            hangups.clear()
            await self._try("SIGHUP")

    async def _try(self, why: str) -> None:
        try:
            await self.reload(why)
        except ConfigError:
            pass  # it was told
        except Conflict as error:
            logger.warning("%s: %s", why, error)
        except Exception:  # a task's root: the next file may do better
            logger.exception("%s: the configuration can't be taken", why)

    def status(self) -> dict[str, Any]:
        """Return what there is to say of the configuration, for the operators."""
        error_at, error = self._error or (None, None)
        secrets = all_secrets(self.loaded.config)
        return {
            "files": [str(path) for path in self._files()],
            "watched": self._source is not None and self._source.watched,
            "loaded_at": _instant(self._loaded_at),
            "reloads": self._count,
            "last_changes": asdict(self._last),
            "error": None if error is None else blank(error, secrets),
            "error_at": _instant(error_at),
            "warnings": [blank(warning, secrets) for warning in self.loaded.warnings],
            "restart_needed": changes(self._first, self.loaded.config).waiting,
        }

    def _files(self) -> list[Path]:
        if self._source is None:
            return []
        try:
            return [path.absolute() for path in self._source.files()]
        except ConfigError:
            return []


def _instant(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat(timespec="seconds")
