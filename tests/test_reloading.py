"""Has the proxy go by its configuration as it is now; here nothing but the reading is real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmsnap.config.loader import Loaded, load
from llmsnap.config.reload import Changes
from llmsnap.config.schema import Config
from llmsnap.config.watching import Source
from llmsnap.errors import ConfigError, Conflict
from llmsnap.fleet import Draft
from llmsnap.reloading import Reloading
from tests.helpers.waiting import eventually

ONE = "models: {a: {cmd: 'serve ${PORT}'}}"
TWO = "models: {a: {cmd: 'serve ${PORT}'}, b: {cmd: 'serve ${PORT}'}}"


class Rig:
    """A file, and what was made of it."""

    def __init__(self, path: Path, *, watched: bool = True) -> None:
        self.path = path
        path.write_text(ONE)
        source = Source.at(lambda: [path], watched=watched)
        self.adopted: list[Changes] = []
        self.refusal: str | None = None
        self.reloading = Reloading(
            load(path),
            source,
            check=self._check,
            draft=self._draft,
            adopt=lambda _, changes: self.adopted.append(changes),
            poll_s=0.02,
        )

    def _check(self, _: Loaded) -> None:
        if self.refusal:
            raise ConfigError(self.refusal)

    async def _draft(self, config: Config) -> Draft:
        return Draft.__new__(Draft)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the file within the block."""
        task = asyncio.ensure_future(self.reloading.watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A file with one model."""
    return Rig(tmp_path / "c.yaml")


async def test_what_has_changed_is_handed_on(rig: Rig) -> None:
    """Once; the next time nothing has changed any more."""
    rig.path.write_text(TWO)
    assert await rig.reloading.reload("reload") == Changes(added=("b",))
    assert await rig.reloading.reload("reload") == Changes()
    assert rig.adopted == [Changes(added=("b",))]
    assert rig.reloading.status()["reloads"] == 2


async def test_u83_a_mistake_changes_nothing_and_is_told(rig: Rig) -> None:
    """In the status, until the file is right again."""
    rig.path.write_text("models: [")
    with pytest.raises(ConfigError):
        await rig.reloading.reload("reload")
    status = rig.reloading.status()
    assert "not valid YAML" in status["error"]
    assert status["error_at"]
    assert list(rig.reloading.loaded.config.models) == ["a"]
    rig.path.write_text(TWO)
    await rig.reloading.reload("reload")
    assert rig.reloading.status()["error"] is None


async def test_what_the_proxy_cant_do_is_a_mistake_too(rig: Rig) -> None:
    """Such as a model that would listen where the proxy does."""
    rig.refusal = "models.b.proxy is where llmsnap itself listens"
    rig.path.write_text(TWO)
    with pytest.raises(ConfigError, match="itself listens"):
        await rig.reloading.reload("reload")
    assert rig.adopted == []


async def test_secrets_arent_in_the_status(rig: Rig) -> None:
    """Not even in a mistake that quotes them."""
    rig.path.write_text("apiKeys: [very-secret-key]\n" + ONE)
    await rig.reloading.reload("reload")
    rig.refusal = "very-secret-key is no good"
    with pytest.raises(ConfigError):
        await rig.reloading.reload("reload")
    assert rig.reloading.status()["error"] == "*** is no good"


async def test_without_a_file_there_is_nothing_to_reload(tmp_path: Path) -> None:
    """As in a demonstration."""
    rig = Rig(tmp_path / "c.yaml")
    reloading = Reloading(
        rig.reloading.loaded,
        None,
        check=lambda _: None,
        draft=rig._draft,
        adopt=lambda *_: None,
    )
    with pytest.raises(Conflict):
        await reloading.reload("reload")
    assert reloading.status()["files"] == []


async def test_p60_a_change_of_the_file_is_noticed(rig: Rig) -> None:
    """Right or wrong: a wrong one leaves the old one in place."""
    async with rig.watching():
        rig.path.write_text("models: [")
        await eventually(lambda: rig.reloading.status()["error"] is not None)
        rig.path.write_text(TWO)
        await eventually(lambda: rig.adopted == [Changes(added=("b",))])


def replaced(path: Path) -> None:
    """As editors write."""
    draft = path.with_suffix(".new")
    draft.write_text(TWO)
    draft.replace(path)


def gone_and_back(path: Path) -> None:
    """As mounts and other editors do."""
    path.unlink()
    path.write_text(TWO)


@pytest.mark.parametrize("change", [replaced, gone_and_back])
async def test_u82_every_way_to_change_a_file_is_noticed(
    rig: Rig, change: Callable[[Path], None]
) -> None:
    """A file that isn't there for a moment is no mistake."""
    async with rig.watching():
        change(rig.path)
        await eventually(lambda: rig.adopted == [Changes(added=("b",))])
    assert rig.reloading.status()["error"] is None


async def test_a_file_that_isnt_watched_may_change(tmp_path: Path) -> None:
    """Then only an order counts."""
    rig = Rig(tmp_path / "c.yaml", watched=False)
    async with asyncio.timeout(30):
        await rig.reloading.watch()


async def test_u81_hangups_that_come_together_are_one(rig: Rig) -> None:
    """SIGHUP has the file read once more; the last word counts."""
    hangups = asyncio.Event()
    task = asyncio.ensure_future(rig.reloading.obey(hangups))
    rig.path.write_text(TWO)
    hangups.set()
    hangups.set()
    await eventually(lambda: bool(rig.adopted))
    assert rig.reloading.status()["reloads"] == 1
    task.cancel()
    await asyncio.wait([task])
