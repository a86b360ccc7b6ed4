"""One model's desk over a server that says and writes what a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmsnap.errors import LlmsnapError
from llmsnap.sessions.desk import Desk
from llmsnap.sessions.slots import Restored, Saved, Server, Slot, Slots
from llmsnap.sessions.subject import Standing, Subject
from llmsnap.sessions.turns import Turn
from llmsnap.sessions.vault import Vault
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.tokens import Tokens

TOKENS = 1000


class MemoryStore:
    """A database that has nothing and forgets all."""

    path: Path | None = None

    def write(
        self, sql: str, values: Sequence[Any], told: Callable[[int], None] | None = None
    ) -> None:
        """Say that it is written."""
        if told is not None:
            told(1)

    async def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Nothing."""
        return []

    async def opened(self) -> None:
        """At once."""


class FakeSlots(Slots):
    """One slot; what it says and writes is the test's."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.slot = Slot(0, n_ctx=4096, id_task=-1)
        self.beside: list[Slot] = []
        self.restored: list[int] = []
        self.list_says: Exception | None = None
        self.save_says: Saved | LlmsnapError | None = None
        self.restore_says: Restored | LlmsnapError | None = None
        self.orders: list[str] = []
        self.may_save = asyncio.Event()
        self.may_save.set()
        self.may_restore = asyncio.Event()
        self.may_restore.set()

    async def list(self, server: Server) -> list[Slot]:
        """The one, and what a test puts beside it."""
        if self.list_says is not None:
            raise self.list_says
        return [self.slot, *self.beside]

    async def save(self, server: Server, slot: int, name: str, limit_s: float) -> Saved:
        """Write a file, and say so."""
        self.orders.append("save")
        await self.may_save.wait()
        held = self.slot.n_prompt_tokens or 0
        (self.folder / name).write_bytes(b"x" * held)
        found = self.save_says or Saved(held, held)
        if isinstance(found, LlmsnapError):
            raise found
        return found

    async def restore(self, server: Server, slot: int, name: str, limit_s: float) -> Restored:
        """Say that it was read."""
        self.orders.append("restore")
        await self.may_restore.wait()
        self.restored.append(slot)
        size = (self.folder / name).stat().st_size
        found = self.restore_says or Restored(size)
        if isinstance(found, LlmsnapError):
            raise found
        return found


@dataclass(frozen=True)
class Process:
    """One generation."""

    generation: int
    model: str = "a"
    host: str = "127.0.0.1"
    port: int = 1
    base_path: str = ""
    tls: bool = False
    key: str = ""


@dataclass
class Stage:
    """A desk and all around it."""

    desk: Desk
    slots: FakeSlots
    vault: Vault
    outcomes: list[tuple[str, str]]
    restarts: list[int] = field(default_factory=list)
    process: Process = Process(1)
    now: float = 1e9
    standing: Standing = "up"

    def start(self, argv: str = "llama-server -np 1") -> None:
        """Have another process, with an empty slot."""
        self.process = Process(self.process.generation + 1)
        self.slots.slot = Slot(0, n_ctx=4096)
        self.desk.meet(self.process, Subject(argv=argv.split(), env={}, min_tokens=256))

    def adopt(self, slot: Slot) -> None:
        """Have another proxy's process, in whose slot something is."""
        self.start()
        self.slots.slot = slot
        argv = ["llama-server", "-np", "1"]
        self.desk.meet(self.process, Subject(argv=argv, env={}, min_tokens=256, is_adopted=True))

    async def ask(
        self, text: str, *, cached: int = 0, tokens: int = TOKENS, whole: bool = True
    ) -> None:
        """Serve one request."""
        record = RequestRecord(model="a", path="", client="", arrived_at=1.0)
        body = json.dumps({"messages": [{"content": part} for part in text.split("|")]})
        turn = Turn(record=record, path="/v1/chat/completions", body=body.encode())
        if self.desk.begins(turn, self.process):
            await self.desk.make_ready(turn)
        record.status, record.ended_at = 200, 2.0
        record.error = "" if whole else "the client left"
        record.tokens = Tokens(computed=tokens - cached, cached=cached, generated=1)
        self.slots.slot = Slot(
            0, n_ctx=4096, id_task=self.slots.slot.id_task + 1, n_prompt_tokens=tokens
        )
        self.desk.answered(record)

    async def stop(self) -> None:
        """Save what there is."""
        await self.desk.save(self.process, least_new=1, limit_s=10)

    def files(self) -> list[str]:
        """What is in the folder."""
        return sorted(file.name for file in self.vault.folder.iterdir())
