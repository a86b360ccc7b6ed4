"""What becomes of `keep_alive`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from llmsnap.core.lifecycle import State
from llmsnap.errors import Conflict
from llmsnap.web.ollama.keepalive import KeepAlive
from tests.helpers.waiting import eventually
from tests.web.fleet import FakeFleet


@pytest.fixture
def fleet() -> FakeFleet:
    """One model that is awake."""
    fleet = FakeFleet("a")
    fleet.put("a", State.READY)
    return fleet


@pytest_asyncio.fixture
async def keeping(fleet: FakeFleet) -> AsyncIterator[KeepAlive]:
    """What puts it away."""
    keeping = KeepAlive(fleet)
    yield keeping
    await keeping.aclose()


async def test_it_sleeps_once_the_time_is_over(fleet: FakeFleet, keeping: KeepAlive) -> None:
    """Nought is at once."""
    keeping.end("a", 0.01)
    assert keeping.left_s("a")
    await eventually(lambda: fleet.orders == [("sleep", "a", None)])
    await eventually(lambda: keeping.left_s("a") is None)


async def test_one_that_cant_sleep_is_stopped(
    fleet: FakeFleet, keeping: KeepAlive, caplog: pytest.LogCaptureFixture
) -> None:
    """As Ollama does."""
    fleet.refusal = Conflict("it can't sleep")
    keeping.end("a", 0)
    await eventually(lambda: fleet.view("a").state is State.STOPPED)


@pytest.mark.parametrize("change", [{"in_flight": 1}, {"waiting": 1}, {"pinned": True}])
async def test_one_that_is_used_or_pinned_stays(
    fleet: FakeFleet, keeping: KeepAlive, change: dict[str, int]
) -> None:
    """Others' requests count."""
    fleet.put("a", State.READY, **change)
    keeping.end("a", 0)
    await eventually(lambda: keeping.left_s("a") is None)
    assert not fleet.orders


async def test_use_by_others_meanwhile_counts(fleet: FakeFleet, keeping: KeepAlive) -> None:
    """They haven't said how long it is to be kept."""
    keeping.end("a", 0.2)
    await asyncio.sleep(0)  # it looks when it was used last
    fleet.put("a", State.READY, used_at=5.0)
    await eventually(lambda: keeping.left_s("a") is None)
    assert not fleet.orders


async def test_a_new_request_takes_back_what_was_said(fleet: FakeFleet, keeping: KeepAlive) -> None:
    """The last one counts."""
    keeping.end("a", 3600)
    keeping.begin("a")
    assert keeping.left_s("a") is None
