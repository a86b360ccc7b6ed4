"""All saved conversations together: room for them, whose turn it is to go, what is swept."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmsnap.sessions import files
from llmsnap.sessions.calendar import Calendar
from llmsnap.sessions.catalogue import SCHEMA, Catalogue, Saved
from llmsnap.sessions.files import FileFault, Room
from llmsnap.sessions.vault import Limits, Vault
from llmsnap.store.store import Store

NOW = 1_800_000_000.0
SIZE = 100_000
DAY = 86_400.0
YEAR = 365 * DAY


def still(now: float) -> Calendar:
    """A moment that doesn't pass."""
    return Calendar(lambda: now, lambda: 0.0)


@asynccontextmanager
async def vault_in(
    folder: Path, calendar: Calendar | None = None, **limits: float
) -> AsyncIterator[Vault]:
    """A proxy's view of `folder`, with an index that others share."""
    store = Store(folder / "index.db", (SCHEMA,), linger_s=0.0)
    budget = limits.get("budget", 2**30)
    vault = Vault(
        folder,
        Catalogue(store),
        Limits(int(budget), limits.get("max_age_s", 0.0)),
        calendar or still(limits.get("now", NOW)),
    )
    assert await vault.make_fit()
    running = asyncio.ensure_future(store.run())
    try:
        await vault.load()
        yield vault
    finally:
        await store.aclose()
        await running


async def put(vault: Vault, used: float, *, model: str = "a", size: int = SIZE) -> Saved:
    """Save something that was used last at `used`."""
    temporary = files.temporary_name()
    (vault.folder / temporary).write_bytes(os.urandom(size))
    name, kept = await vault.keep(temporary, size)
    saved = Saved(
        name=name,
        model=model,
        facts={},
        engine="",
        scope="",
        session="",
        marks=(os.urandom(16),),
        length=10,
        tokens=1000,
        prompt_tokens=900,
        kept=kept,
        made=used,
        used=used,
    )
    await vault.add(saved, instead_of=[])
    return saved


def names(vault: Vault) -> set[str]:
    """What is in the folder and what is known, which must be the same."""
    there = {path.name for path in vault.folder.glob("*.kv")}
    assert there == {saved.name for saved in vault.catalogue.all()}
    return there


async def test_e13_what_was_used_longest_ago_goes_when_the_budget_is_exceeded(
    tmp_path: Path,
) -> None:
    """Whichever model it is of; what is used again is young again."""
    async with vault_in(tmp_path / "s", budget=3.5 * SIZE) as vault:
        first, second, third = [await put(vault, NOW + n) for n in range(3)]
        vault.catalogue.use(first, NOW + 10)
        fourth = await put(vault, NOW + 11, model="b")
        assert names(vault) == {first.name, third.name, fourth.name}
        assert second.name not in names(vault)


async def test_what_alone_is_over_the_budget_isnt_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, rather than done at every save in silence."""
    async with vault_in(tmp_path / "s", budget=SIZE // 2) as vault:
        await put(vault, NOW)
        assert names(vault) == set()
    assert "sessions.budget is too small" in caplog.text


async def test_old_conversations_go(tmp_path: Path) -> None:
    """By when they were wanted last, not by when they were made."""
    async with vault_in(tmp_path / "s", max_age_s=100.0) as vault:
        old, used = await put(vault, NOW - 200), await put(vault, NOW - 200)
        vault.catalogue.use(used, NOW - 50)
        await vault.sweep()
        assert names(vault) == {used.name}
        assert old.name != used.name


class Clocks:
    """The wall clock, which may be set, and the time that really passes."""

    def __init__(self) -> None:
        self.wall, self.elapsed = NOW, 0.0

    def calendar(self) -> Calendar:
        """What a proxy that starts now goes by."""
        return Calendar(lambda: self.wall, lambda: self.elapsed)

    def passes(self, seconds: float) -> None:
        """Nobody touches a clock."""
        self.wall += seconds
        self.elapsed += seconds


@pytest.mark.parametrize("jump_s", [YEAR, -YEAR])
async def test_a_clock_that_jumps_ages_nothing(tmp_path: Path, jump_s: float) -> None:
    """Neither while the proxy runs nor for the next one; what grows old then goes as ever."""
    clocks = Clocks()
    async with vault_in(tmp_path / "s", clocks.calendar(), max_age_s=30 * DAY) as vault:
        old, young = await put(vault, NOW - 29 * DAY), await put(vault, NOW)
        clocks.wall += jump_s
        await vault.load()
        assert names(vault) == {old.name, young.name}
    async with vault_in(tmp_path / "s", clocks.calendar(), max_age_s=30 * DAY) as vault:
        assert names(vault) == {old.name, young.name}
        clocks.passes(2 * DAY)
        await vault.load()
        assert names(vault) == {young.name}


@pytest.mark.parametrize("index", ["of now", "from before there was a calendar"])
async def test_a_clock_that_is_wrong_after_a_start_costs_half_an_age(
    tmp_path: Path, index: str
) -> None:
    """Nobody can tell it from a machine that was off; what was used of late stays."""
    clocks = Clocks()
    async with vault_in(tmp_path / "s", clocks.calendar(), max_age_s=30 * DAY) as vault:
        old, young = await put(vault, NOW - 20 * DAY), await put(vault, NOW)
    if index != "of now":
        with sqlite3.connect(tmp_path / "s" / "index.db") as database:
            database.execute("DELETE FROM session_calendar")
    clocks.wall += YEAR
    async with vault_in(tmp_path / "s", clocks.calendar(), max_age_s=30 * DAY) as vault:
        assert old.name not in names(vault)
        assert names(vault) == {young.name}


async def test_after_two_months_off_the_old_ones_go_in_time(tmp_path: Path) -> None:
    """Some at the start, the others within half of their age."""
    clocks = Clocks()
    async with vault_in(tmp_path / "s", clocks.calendar(), max_age_s=30 * DAY) as vault:
        young = await put(vault, NOW)
    clocks.passes(60 * DAY)
    async with vault_in(tmp_path / "s", clocks.calendar(), max_age_s=30 * DAY) as vault:
        assert names(vault) == {young.name}
        clocks.passes(14 * DAY)
        await vault.load()
        assert names(vault) == {young.name}
        clocks.passes(2 * DAY)
        await vault.load()
        assert names(vault) == set()


async def test_u131_e22_room_is_asked_of_a_folder_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older files make room for newer ones; where that isn't enough, all stay."""
    free = 10 * SIZE
    monkeypatch.setattr(files, "room", lambda folder: Room(100 * SIZE, free))
    async with vault_in(tmp_path / "new" / "s") as vault:
        old, young = await put(vault, NOW), await put(vault, NOW + 1)
        await vault.make_room(SIZE)
        assert names(vault) == {old.name, young.name}
        free = 5 * SIZE
        await vault.make_room(SIZE // 2)
        assert names(vault) == {young.name}
        with pytest.raises(FileFault, match="are free on the disk of"):
            await vault.make_room(50 * SIZE)
        assert names(vault) == {young.name}


async def test_two_proxies_dont_sweep_each_others_files(tmp_path: Path) -> None:
    """What isn't known here may be another's, whose row is written; what is gone is forgotten."""
    async with vault_in(tmp_path / "s") as one, vault_in(tmp_path / "s", now=NOW + 1e6) as two:
        mine, yours = await put(one, NOW), await put(two, NOW + 1)
        await two.load()
        assert names(two) == {mine.name, yours.name}
        await one.delete([yours.name])
        await two.delete([mine.name])
        await one.load()
        assert names(one) == set()


async def test_what_vanished_is_forgotten(tmp_path: Path) -> None:
    """At the next look, as is the next proxy's."""
    async with vault_in(tmp_path / "s") as vault:
        gone, there = await put(vault, NOW), await put(vault, NOW)
        (vault.folder / gone.name).unlink()
        await vault.load()
        assert names(vault) == {there.name}
    async with vault_in(tmp_path / "s") as vault:
        assert names(vault) == {there.name}


async def test_without_an_index_files_that_nobody_knows_go_after_a_while(tmp_path: Path) -> None:
    """Not at once: another proxy may be about to write their row."""
    async with vault_in(tmp_path / "s") as vault:
        saved = await put(vault, NOW)
    for path in vault.folder.glob("index.db*"):
        path.unlink()
    file = vault.folder / saved.name
    for age, is_there in ((10, True), (1000, False)):
        os.utime(file, (NOW - age, NOW - age))
        async with vault_in(tmp_path / "s"):
            assert file.exists() is is_there


async def test_an_index_that_is_none_is_set_aside(tmp_path: Path) -> None:
    """A new one begins, and saving goes on."""
    folder = tmp_path / "s"
    async with vault_in(folder):
        pass
    (folder / "index.db").write_bytes(b"not a database at all" * 100)
    async with vault_in(folder) as vault:
        saved = await put(vault, NOW)
    async with vault_in(folder) as vault:
        assert names(vault) == {saved.name}
