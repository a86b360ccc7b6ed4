"""What the scheduler is told of memory, and when."""

from __future__ import annotations

import asyncio
import logging

import pytest

from llmsnap.config.schema import MemoryConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ForeignChanged, NeedChanged
from llmsnap.memory.machine import Look
from tests.helpers.waiting import eventually
from tests.memory.looks import GIB, gib, look, reading, tree
from tests.runtime.watching import Stage


def card(used: float, **processes: float) -> Look:
    """A card of 24 GiB with processes by pid, and a model `a` with pid 10."""
    listed = {int(name.strip("_")): size for name, size in processes.items()}
    return look(reading("gpu0", used, processes=listed), a=tree(10, anonymous=0.25))


async def test_what_others_use_is_told_when_it_changes() -> None:
    """Not each little change; but that nothing is left is."""
    stage = Stage({"gpu0": gib(23.5)})
    assert await stage.shows(card(1)) == [ForeignChanged("gpu0", GIB)]
    assert await stage.shows(card(1.01)) == []
    assert await stage.shows(card(11)) == [ForeignChanged("gpu0", 11 * GIB)]
    assert await stage.shows(card(0)) == [ForeignChanged("gpu0", 0)]


async def test_what_our_models_hold_is_not_others_use() -> None:
    """Of 9 GiB, the model has 8."""
    stage = Stage({"gpu0": gib(23.5)})
    news = await stage.shows(card(9, _10=8), a=State.READY)
    assert ForeignChanged("gpu0", GIB) in news


async def test_others_may_use_what_is_outside_of_a_budget() -> None:
    """Of 24 GiB, 10 are for models and 1 is reserved: only what goes beyond the 13 counts."""
    config = MemoryConfig(devices={"host": 10 * GIB})
    stage = Stage({"host": 10 * GIB}, config)
    assert await stage.shows(look(reading("host", 12))) == []
    assert await stage.shows(look(reading("host", 16))) == [ForeignChanged("host", 3 * GIB)]


async def test_an_awake_model_is_learned_from() -> None:
    """While it comes up it isn't: it has yet to take its memory."""
    stage = Stage({"gpu0": gib(23.5)})
    assert await stage.shows(card(3, _10=3), a=State.STARTING) == []
    need = {"gpu0": 8 * GIB, "host": gib(0.25)}
    assert await stage.shows(card(8, _10=8), a=State.READY) == [NeedChanged("a", need)]
    assert await stage.shows(card(8, _10=8)) == []


async def test_memory_that_is_on_its_way_back_is_not_others_use() -> None:
    """The process is gone, the device doesn't show it yet: somebody waits for that."""
    stage = Stage({"gpu0": gib(23.5)})
    await stage.shows(card(8, _10=8), a=State.READY)
    assert await stage.shows(card(8), a=State.STOPPING) == []
    assert await stage.shows(card(0), a=State.STOPPED) == []


async def test_u75_what_a_sleeping_model_keeps_is_others_use() -> None:
    """Engines that sleep by themselves keep a context on the GPU."""
    stage = Stage({"gpu0": gib(23.5)})
    await stage.shows(card(8, _10=8), a=State.READY)
    news = await stage.shows(card(0.5, _10=0.5), a=State.ASLEEP)
    assert news == [ForeignChanged("gpu0", gib(0.5))]


async def test_old_news_decides_nothing() -> None:
    """A driver that stalls, or a card that is lost, leaves the books as they are."""
    stage = Stage({"gpu0": gib(23.5)})
    await stage.shows(card(1), a=State.READY)
    old = look(reading("gpu0", 9, processes={}), stale="gpu0", a=tree(10, anonymous=1))
    assert await stage.shows(old) == []
    lost = look(reading("host", 1), a=tree(10, anonymous=1))
    assert await stage.shows(lost) == []


async def test_nothing_is_learned_where_a_device_is_silent() -> None:
    """Of a budget for a card that nobody can read it isn't known who takes it."""
    stage = Stage({"gpu0": gib(23.5)}, MemoryConfig(devices={"gpu0": gib(23.5)}))
    seen = look(reading("host", 1), a=tree(10, anonymous=1))
    assert await stage.shows(seen, a=State.READY) == []


async def test_faults_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """And that they are over."""
    caplog.set_level(logging.INFO, "llmsnap")
    stage = Stage({})
    for faults in (("NVML stalls",), ("NVML stalls",), ()):
        await stage.shows(look(faults=faults))
    assert caplog.messages == ["memory: NVML stalls", "memory: everything can be read again"]


async def test_it_looks_again_when_a_model_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle, it would take its time."""
    for pause in ("_IDLE_S", "_BUSY_S"):
        monkeypatch.setattr(f"llmsnap.runtime.watch.{pause}", 3600.0)
    stage = Stage({})
    task = asyncio.ensure_future(stage.watch.run())
    await eventually(lambda: stage.looks == 1)
    stage.becomes("a", State.STARTING)
    await eventually(lambda: stage.looks >= 2)
    task.cancel()


async def test_it_isnt_in_the_way_of_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look costs the event loop time just when a model is forwarded its request."""
    for pause in ("_IDLE_S", "_BUSY_S", "_SOON_S"):
        monkeypatch.setattr(f"llmsnap.runtime.watch.{pause}", 3600.0)
    stage = Stage({})
    task = asyncio.ensure_future(stage.watch.run())
    await eventually(lambda: stage.looks == 1)
    stage.becomes("a", State.WAKING)
    stage.becomes("a", State.READY)
    for _ in range(10):
        await asyncio.sleep(0)
    assert stage.looks == 1
    task.cancel()


async def test_it_survives_what_it_did_not_expect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A look that fails is logged, and there is another."""
    stage = Stage({})
    with monkeypatch.context() as patch:
        patch.setattr(stage, "shown", None)
        task = asyncio.ensure_future(stage.watch.run())
        await eventually(lambda: "looking at the memory failed" in caplog.text)
    stage.becomes("a", State.STARTING)
    await eventually(lambda: stage.looks >= 2)
    assert not task.done()
    task.cancel()
