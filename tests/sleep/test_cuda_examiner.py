"""What the examiner remembers: reasons that won't change aren't looked for again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from llmsnap.errors import SleepRefused
from llmsnap.sleep.cuda_client import CallLost
from llmsnap.sleep.driver import Unsupported
from tests.sim.gauge import Gauge
from tests.sim.world import World
from tests.sleep.cuda_bench import Bench


@pytest.fixture
async def bench(world: World, gauge: Gauge) -> AsyncIterator[Bench]:
    """A driver on one card."""
    bench = Bench(world, gauge)
    yield bench
    await bench.close()


async def test_a_process_that_may_not_be_looked_into_is_asked_once(bench: Bench) -> None:
    """As long as it lives; its successor is asked anew."""
    bench.world.turn(processes="unknown")
    target = bench.target(await bench.holder())
    bench.world.plan("state", 304)
    for _ in range(2):  # the driver would answer well the second time
        verdict = await bench.driver.probe(target)
        assert isinstance(verdict, Unsupported)
        assert "run it as the user of llmsnap" in verdict.reason
    assert not isinstance(await bench.driver.probe(replace(target, generation=2)), Unsupported)


async def test_a_process_that_is_locked_by_others_is_left_alone(bench: Bench) -> None:
    """Who locked it may be about to do something with it."""
    holder = await bench.holder()
    await bench.client.lock(holder.pid, timeout_s=1, deadline_s=30)
    with pytest.raises(SleepRefused, match="it is locked, not running"):
        await bench.driver.sleep(bench.target(holder))


async def test_a_driver_that_does_not_come_up_may_come_up_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That isn't remembered."""

    async def hello() -> None:
        raise CallLost("it doesn't start")

    target = bench.target(await bench.holder())
    monkeypatch.setattr(bench.client, "hello", hello)
    assert await bench.driver.probe(target) == Unsupported("it doesn't start")
    monkeypatch.undo()
    assert not isinstance(await bench.driver.probe(target), Unsupported)
