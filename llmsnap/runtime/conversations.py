"""What is to be done about conversations when a process is up, sleeps, and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from llmsnap.runtime.upstream import Upstream


class Conversations(Protocol):
    """Whoever keeps the conversations of all models."""

    @property
    def before_stop_s(self) -> float: ...

    @property
    def wake_s(self) -> float: ...

    def ready(
        self, process: Upstream, argv: Sequence[str], env: Mapping[str, str], *, adopted: bool
    ) -> None: ...

    async def before_sleep(self, process: Upstream, *, loses_cache: bool) -> None: ...

    def lost(self, process: Upstream) -> None: ...

    def is_worth_waking(self, process: Upstream) -> bool: ...

    async def before_stop(self, process: Upstream) -> None: ...


class NoConversations:
    """Lets them go."""

    before_stop_s = 0.0
    wake_s = 0.0

    def ready(
        self, process: Upstream, argv: Sequence[str], env: Mapping[str, str], *, adopted: bool
    ) -> None:
        """Do nothing."""

    async def before_sleep(self, process: Upstream, *, loses_cache: bool) -> None:
        """Do nothing."""

    def lost(self, process: Upstream) -> None:
        """Do nothing."""

    def is_worth_waking(self, process: Upstream) -> bool:
        """Say no."""
        return False

    async def before_stop(self, process: Upstream) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Talks:
    """Those of one process, for whoever puts it to sleep."""

    conversations: Conversations
    process: Upstream

    async def before_sleep(self, *, loses_cache: bool) -> None:
        """Let them be saved, as far as that is wanted before a sleep."""
        await self.conversations.before_sleep(self.process, loses_cache=loses_cache)

    def lost(self) -> None:
        """Tell that the process is awake again and its cache is gone."""
        self.conversations.lost(self.process)
