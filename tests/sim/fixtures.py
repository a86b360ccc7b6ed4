"""What tests on the simulated driver begin with; a folder's conftest imports what it wants."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.sim.build import build, missing_compiler
from tests.sim.gauge import Gauge
from tests.sim.world import Card, World


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the simulated libraries, built once."""
    if reason := missing_compiler():
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("driver") / "new")


@pytest.fixture(scope="session")
def old_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a driver that is too old for checkpoints."""
    if reason := missing_compiler():
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("driver") / "old", before_570=True)


@pytest.fixture
def make_world(tmp_path: Path, libraries: Path) -> Callable[..., World]:
    """Make a machine with the cards that one names; call it once a test."""

    def make(*cards: Card, libraries: Path = libraries) -> World:
        return World(tmp_path / "gpu", libraries, *cards)

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A machine with one card of 24 GiB."""
    return make_world()


@pytest.fixture
async def gauge(world: World) -> AsyncIterator[Gauge]:
    """NVML of `world`, stale after 3 s."""
    gauge = await Gauge.start(world.environ(), period_s=1.0, patience_s=1.5)
    yield gauge
    await gauge.aclose()


def unshare() -> list[str]:
    """Return the command that runs another in a pid namespace of its own; skip where it can't."""
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"]).returncode:
        pytest.skip("no pid namespace can be made here; it takes root and unshare")
    return command
