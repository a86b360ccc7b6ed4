"""A desk with all around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.errors import LlmsnapError
from llmsnap.sessions.calendar import Calendar
from llmsnap.sessions.catalogue import Catalogue
from llmsnap.sessions.desk import Desk
from llmsnap.sessions.outcome import Outcome
from llmsnap.sessions.subject import Shared
from llmsnap.sessions.vault import Limits, Vault
from tests.sessions.stage import FakeSlots, MemoryStore, Stage


@pytest.fixture
def slots_kind() -> type[FakeSlots]:
    """Which server there is."""
    return FakeSlots


@pytest.fixture
async def stage(tmp_path: Path, slots_kind: type[FakeSlots]) -> Stage:
    """One model that is up."""
    outcomes: list[tuple[str, str]] = []
    restarts: list[int] = []

    def tell(outcome: Outcome) -> None:
        outcomes.append((outcome.op, outcome.result))

    def restart(model: str, generation: int, error: LlmsnapError) -> None:
        restarts.append(generation)

    vault = Vault(tmp_path / "s", Catalogue(MemoryStore()), Limits(2**30), Calendar(lambda: 1e9))
    assert await vault.make_fit()
    slots = slots_kind(vault.folder)
    shared = Shared(
        slots=slots,
        vault=vault,
        tell=tell,
        now=lambda: 1e9,
        standing=lambda *_: made.standing,
        restart=restart,
        flush=lambda: None,
    )
    made = Stage(Desk("a", shared), slots, vault, outcomes, restarts)
    made.start()
    return made
